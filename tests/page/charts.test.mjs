// The charts, with usual and with extreme data, in every look.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { axe, closeAll, open, serveFolder, sidewaysScroll } from "./browser.mjs";

const GALLERY = process.env.FLEETWRIGHT_GALLERY ?? "target/debug/examples/gallery";
const LOOKS = [
  ["index.html", { theme: "light" }],
  ["index.html", { theme: "dark" }],
  ["index.html", { theme: "light", width: 375 }],
  ["index.html", { theme: "dark", width: 375 }],
  ["index.html", { theme: "light", width: 320 }],
  ["index.html", { theme: "dark", forcedColors: true }],
  ["extreme.html", { theme: "light" }],
  ["extreme.html", { theme: "dark", width: 320 }],
];

let folder;
let server;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fleetwright-charts-"));
  execFileSync(GALLERY, [folder]);
  server = await serveFolder(folder);
});

after(async () => {
  await server?.stop();
  await closeAll();
  rmSync(folder, { recursive: true, force: true });
});

for (const [name, look] of LOOKS) {
  test(`axe finds nothing on ${name} with ${JSON.stringify(look)}`, async () => {
    const page = await open(`${server.url}/${name}`, look);
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(page.problems, []);
    assert.equal(await sidewaysScroll(page), 0);
  });
}

test("axe finds nothing where all tables of numbers are open", async () => {
  const page = await open(`${server.url}/index.html`, { width: 320 });
  const n = await page.evaluate(() => {
    const all = [...document.querySelectorAll("details")];
    for (const details of all) details.open = true;
    return all.length;
  });
  assert.ok(n > 2);
  assert.deepEqual(await axe(page), []);
  assert.equal(await sidewaysScroll(page), 0);
});

test("a key moves the cursor of all charts, and their legends show its values", async () => {
  const page = await open(`${server.url}/index.html`);
  const read = () =>
    page.evaluate(() => ({
      times: [...document.querySelectorAll("[data-when]")].map((it) => it.textContent),
      values: [...document.querySelectorAll("[data-values]")].map((it) => it.textContent),
      lines: [...document.querySelectorAll("[data-cursor] path.cur")].map((it) => it.getAttribute("d")),
      text: document.querySelector("[data-scrub]").getAttribute("aria-valuetext"),
    }));
  const first = await read();
  await page.focus("[data-scrub]");
  await page.keyboard.press("Home");
  const start = await read();
  assert.deepEqual(new Set(start.times), new Set(["30 Nov, 08:31"]));
  assert.equal(start.text, "30 Nov, 08:31");
  assert.notDeepEqual(start.values, first.values);
  assert.ok(start.lines.every((line) => /^M\d+ 0v500$/.test(line)), String(start.lines));
  assert.ok(start.lines.every((line, number) => line !== first.lines[number]));
  await page.keyboard.press("End");
  // The script and the program write the same texts.
  assert.deepEqual(await read(), first);
});

test("the pointer moves the cursor of all charts", async () => {
  const page = await open(`${server.url}/index.html`);
  const plot = await page.locator(".chart .ch[role=img]").first().boundingBox();
  await page.mouse.move(plot.x + plot.width / 2, plot.y + plot.height / 2);
  const times = await page.locator("[data-when]").allTextContents();
  assert.deepEqual(new Set(times), new Set(["30 Nov, 11:31"]));
});

test("without scripts the values, the numbers and a button for the time are there", async () => {
  const page = await open(`${server.url}/index.html`, { script: false });
  assert.equal(await page.locator(".key dd").first().textContent(), "1");
  assert.equal(await page.locator(".scrub button").isVisible(), true);
  await page.locator("summary", { hasText: "Numbers" }).first().click();
  assert.equal(await page.locator(".nums table").first().isVisible(), true);
  await page.locator(".scrub input[type=range]").press("Home");
  await page.locator(".scrub button").click();
  assert.equal(new URL(page.url()).search, "?pool=a%26b&at=1796027460000");
});

test("short segments of a life can be seen on a narrow page", async () => {
  const page = await open(`${server.url}/index.html`, { width: 375 });
  const widths = await page.evaluate(() =>
    [...document.querySelectorAll(".life rect")].map((it) => it.getBoundingClientRect().width),
  );
  assert.ok(widths.length > 4);
  assert.ok(Math.min(...widths) >= 2, String(widths));
});
