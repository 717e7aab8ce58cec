// The pages of the program, on a fleet that works: each picture, in its looks, and some actions.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { HANGS_MS, axe, browser, closeAll, sidewaysScroll, startServer } from "./browser.mjs";

// A pool with few tasks, so that the simulations are quick.
const QUESTION = "pool=proj-release%2Fdecision&range=6h&max=1";
const PAGES = [
  "/",
  "/waiting",
  "/what-if",
  `/what-if?${QUESTION}`,
  "/workers",
  "/health",
  "/start-up",
  "/errors",
  "/images",
  "/images/android-ci",
  "/rules",
  "/money",
  "/providers",
  "/events",
  "/pools/proj-build/linux-large",
];
const LOOKS = [
  { colorScheme: "light", viewport: { width: 1280, height: 900 } },
  { colorScheme: "dark", viewport: { width: 375, height: 700 } },
];

let demo;
let state;

/** A browser without cookies of others. It waits as long as a busy machine needs. */
async function fresh(options = {}) {
  const context = await (await browser()).newContext(options);
  context.setDefaultTimeout(HANGS_MS);
  return context;
}

/** A page of a signed-in browser, which notes errors of scripts and of the policy. */
async function look(options = {}) {
  const context = await fresh({ storageState: state, ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.problems.push(message.text());
  });
  return page;
}

before(async () => {
  demo = await startServer([], { command: "demo" });
  const context = await fresh();
  const page = await context.newPage();
  await page.goto(demo.link);
  await page.click("main button");
  await page.waitForURL(`${demo.url}/`);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await closeAll();
  await demo?.stop();
});

test("a link signs in once", async () => {
  const context = await fresh();
  const page = await context.newPage();
  const answer = await page.goto(demo.link);
  assert.equal(answer.status(), 403);
  assert.match(await page.textContent("main"), /was used/);
  await context.close();
});

for (const path of PAGES) {
  test(`${path} can be used by everybody`, async () => {
    for (const options of LOOKS) {
      const page = await look(options);
      const answer = await page.goto(`${demo.url}${path}`);
      assert.equal(answer.status(), 200);
      assert.deepEqual(await axe(page), []);
      assert.deepEqual(page.problems, []);
      await page.setViewportSize({ width: 320, height: 700 });
      assert.equal(await sidewaysScroll(page), 0);
      await page.context().close();
    }
  });
}

test("a page says more without its script than nothing", async () => {
  const page = await look({ javaScriptEnabled: false });
  await page.goto(`${demo.url}/pools/proj-build/linux-large`);
  assert.match(await page.textContent("h1"), /linux-large/);
  assert.ok((await page.locator("svg.ch").count()) > 0);
  await page.context().close();
});

test("a question about a change is answered on the open page, and the answer can be shared", async () => {
  const page = await look();
  await page.goto(`${demo.url}/pools/proj-release/decision`);
  await page.click("text=What if the maximum");
  await page.waitForURL(/what-if/);
  assert.equal(await page.inputValue("[name=max]"), "8");
  await page.selectOption("[name=range]", "6h");
  await page.fill("[name=max]", "1");
  await page.click("form.ask button");
  await page.waitForURL(/max=1/);
  // It comes by itself.
  await page.locator("#answer table").first().waitFor();
  assert.match(await page.textContent("main .lede"), /With a maximum of 1 instead of 4/);
  assert.match(await page.textContent("footer"), /--pool proj-release\/decision --max-capacity 1/);
  assert.ok((await page.locator("#answer svg.ch").count()) > 1);
  assert.deepEqual(await axe(page), []);
  assert.deepEqual(page.problems, []);
  await page.setViewportSize({ width: 320, height: 700 });
  assert.equal(await sidewaysScroll(page), 0);
  const shared = await look({ javaScriptEnabled: false });
  await shared.goto(page.url());
  // Without its script a page has to be loaded again.
  while (!/With a maximum/.test(await shared.textContent("main .lede"))) {
    await shared.click("text=look again");
  }
  assert.ok((await shared.locator("#answer svg.ch").count()) > 1);
  await shared.context().close();
  await page.context().close();
});

test("a pause shows on an open page, and is in the audit log with its reason", async () => {
  const watching = await look();
  await watching.goto(`${demo.url}/providers`);
  const acting = await look();
  await acting.goto(`${demo.url}/pools/proj-build/linux-large`);
  await acting.click("button[popovertarget=pause]");
  await acting.fill("#pause [name=reason]", "a look at it");
  assert.match(await acting.textContent("#pause .cmd"), /--reason 'a look at it'/);
  await acting.click("#pause button.go");
  await acting.waitForURL(/linux-large/);
  // The open page changes by itself.
  await watching.locator("text=a look at it").first().waitFor();
  await watching.goto(`${demo.url}/events?type=override&entity=page-proj-build-linux-large`);
  assert.match(await watching.textContent("main"), /static\/owner/);
  await watching.context().close();
  await acting.context().close();
});

test("keys lead to pages, and a sign-out ends the session", async () => {
  const page = await look();
  await page.goto(`${demo.url}/`);
  await page.keyboard.press("g");
  await page.keyboard.press("m");
  await page.waitForURL(/money/);
  await page.click("text=Sign out");
  await page.waitForURL(/sign-in/);
  const answer = await page.goto(`${demo.url}/`);
  assert.equal(answer.status(), 401);
  await page.context().close();
});

test("an open page says that the server is away, and goes on when it is back", async () => {
  const first = await startServer();
  const { port } = new URL(first.url);
  const context = await fresh();
  const page = await context.newPage();
  await page.goto(first.link);
  await page.click("main button");
  const stream = page.locator("#stream");
  await stream.filter({ hasText: /^live$/ }).waitFor();
  await page.fill("input[type=search]", "default");
  await first.stop({ keep: true });
  await stream.filter({ hasText: "not live" }).waitFor();
  const second = await startServer([], { port, folder: first.folder });
  await stream.filter({ hasText: /^live$/ }).waitFor();
  assert.equal(await page.inputValue("input[type=search]"), "default");
  await context.close();
  await second.stop();
});

test("a task's worker comes and goes on an open page, and evil names stay texts", async () => {
  const evil = "<img src=x onerror=alert(1)>";
  const server = await startServer();
  const context = await fresh();
  const page = await context.newPage();
  page.on("dialog", () => assert.fail("a script of a task's name ran"));
  await page.goto(server.link);
  await page.click("main button");
  await page.goto(`${server.url}/pools/local/default`);
  const log = `printf '%s\\n' '${evil}'`;
  await server.run(["task", "create", "--pool", "local/default", "--name", evil, "--", "sh", "-c", log]);
  await page.locator("#configs td", { hasText: /^1$/ }).first().waitFor();
  await page.goto(`${server.url}/workers`);
  const worker = page.locator("tbody th a").first();
  await worker.waitFor();
  await worker.click();
  await page.locator("h2", { hasText: "Its life" }).waitFor();
  await page.locator("#runs th a").first().click();
  await page.locator("#log pre", { hasText: evil }).waitFor();
  assert.equal(await page.textContent("h1"), evil);
  assert.equal(await page.locator("main img").count(), 0);
  // Workers outlive their server, so this one ends first.
  await page.goto(`${server.url}/workers`);
  await server.run(["worker", "end", "--pool", "local/default", "--reason", "over", "--yes"]);
  await page.locator("text=No worker fits").waitFor();
  await context.close();
  await server.stop();
});
