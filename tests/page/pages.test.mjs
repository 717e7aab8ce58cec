// The pages of the program, on a fleet that works: each picture, in its looks, and some actions.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { axe, closeAll, open, sidewaysScroll, signIn, startServer } from "./browser.mjs";

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
  "/images/gpu-cuda",
  "/rules/firefly",
  "/health?state=all",
  "/start-up?phase=registered",
  "/pools/proj-build/linux-large",
  "/pools/proj-mobile/android?range=7d",
];
const LOOKS = [
  { theme: "light" },
  { theme: "dark", width: 375, height: 700 },
];

let demo;
let state;

/** A page of the demo, in a browser that is signed in. */
function look(path, options = {}) {
  return open(`${demo.url}${path}`, { state, ...options });
}

before(async () => {
  demo = await startServer([], { command: "demo" });
  state = await signIn(demo);
});

after(async () => {
  await closeAll();
  await demo?.stop();
});

test("a link signs in once", async () => {
  const page = await open(demo.link);
  assert.equal(page.status, 403);
  assert.match(await page.textContent("main"), /was used/);
  await page.context().close();
});

for (const path of PAGES) {
  test(`${path} can be used by everybody`, async () => {
    for (const options of LOOKS) {
      const page = await look(path, options);
      assert.equal(page.status, 200);
      assert.deepEqual(await axe(page), []);
      assert.deepEqual(page.problems, []);
      await page.setViewportSize({ width: 320, height: 700 });
      assert.equal(await sidewaysScroll(page), 0);
      await page.context().close();
    }
  });
}

test("a page says more without its script than nothing", async () => {
  const page = await look("/pools/proj-build/linux-large", { script: false });
  assert.match(await page.textContent("h1"), /linux-large/);
  assert.ok((await page.locator("svg.ch").count()) > 0);
  await page.context().close();
});

test("a click in the chart of a pool shows the decision of that moment, and the address keeps it", async () => {
  const page = await look("/pools/proj-build/linux-large?range=6h");
  await page.locator("#decision h3", { hasText: "offers taken" }).waitFor();
  const plot = await page.locator("#chart .over").last().boundingBox();
  // Three hours ago the demo did not run yet.
  await page.mouse.click(plot.x + plot.width / 2, plot.y + plot.height / 2);
  await page.locator("#decision", { hasText: "No decision from before this moment" }).waitFor();
  assert.match(page.url(), /range=6h&at=\d+$/);
  const time = await page.textContent("#chart [data-when]");
  await page.reload();
  assert.match(await page.textContent("#decision h2"), /^Decision at /);
  assert.equal(await page.textContent("#chart [data-when]"), time);
  // The pointer only reads values: the cursor returns to the moment of the address.
  await page.mouse.move(plot.x + plot.width / 4, plot.y + plot.height / 2);
  assert.notEqual(await page.textContent("#chart [data-when]"), time);
  await page.mouse.move(0, 0);
  assert.equal(await page.textContent("#chart [data-when]"), time);
  await page.locator("[data-scrub]").press("End");
  await page.locator("#decision h2", { hasText: /^Decision$/ }).waitFor();
  assert.match(page.url(), /range=6h$/);
  await page.locator("#stream", { hasText: /^live$/ }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test("without its script, links lead to the decision of a moment and back", async () => {
  const page = await look("/pools/proj-build/linux-large?range=6h", { script: false });
  await page.locator("#chart .over").last().locator("a").nth(24).click();
  assert.match(page.url(), /range=6h&at=\d+#decision$/);
  assert.match(await page.textContent("#decision h2"), /^Decision at /);
  await page.click("text=Newest");
  assert.equal(await page.textContent("#decision h2"), "Decision");
  await page.context().close();
});

test("changes by people are marked in the chart of a pool", async () => {
  const page = await look("/pools/proj-mobile/android?range=7d");
  assert.ok((await page.locator("#chart .mks .chg").count()) > 0);
  const change = page.locator("#chart .marks a", { hasText: "maximum 10, by people/ben" });
  await change.click();
  await page.waitForURL(/events\?type=override&entity=cap-android/);
  await page.context().close();
});

test("an image says whether its new build is safe, with what to do about it", async () => {
  const page = await look("/images/gpu-cuda");
  assert.match(await page.textContent("#canary"), /of the way to its promotion/);
  const label = await page.getAttribute("#canary svg[role=img]", "aria-label");
  assert.match(label, /^Build 2 against the build in use\. .+ % of the way/);
  const drawn = await page.getAttribute("#canary path.l-good", "d");
  assert.ok(drawn.length > 20, "the evidence has a course");
  for (const name of ["Promote…", "Pin…", "Roll back…"]) {
    assert.equal(await page.locator("#canary .hd button", { hasText: name }).count(), 1, name);
  }
  await page.goto(`${demo.url}/images/android-ci`);
  assert.match(await page.textContent("#canary"), /Rolled back .+ Worse after \d+ starts/);
  await page.context().close();
});

test("a worker has its life as a line", async () => {
  const page = await look("/workers?presence=busy");
  await page.locator("tbody th a").first().click();
  await page.locator(".life rect").nth(1).waitFor();
  assert.match(await page.textContent(".lives"), /booting/);
  assert.deepEqual(await axe(page), []);
  await page.context().close();
});

test("health has a board by region, and a launch config is paused and resumed", async () => {
  const page = await look("/health");
  const notes = await page.locator(".board .cn").allTextContents();
  assert.ok(notes.some((note) => /paused, ends in/.test(note)), String(notes));
  await page.goto(`${demo.url}/pools/proj-build/linux-small`);
  const row = page.locator("#configs tbody tr").first();
  await row.locator("button", { hasText: "Pause…" }).click();
  await row.locator("[name=reason]").fill("a look");
  await row.locator("button.go").click();
  await row.locator("td", { hasText: /^paused$/ }).waitFor();
  await row.locator("button", { hasText: "Resume…" }).click();
  await row.locator("button.go").click();
  await row.locator("button", { hasText: "Pause…" }).waitFor();
  await page.context().close();
});

test("start-up times are a histogram, by step and by place", async () => {
  const page = await look("/start-up");
  const total = await page.getAttribute("#startup svg[role=img]", "aria-label");
  assert.match(total, /^Time from the decision to work\. \d+ in all/);
  await page.click("nav[aria-label=Step] a:has-text('until registered')");
  await page.locator("h2", { hasText: "Time until registered" }).waitFor();
  await page.locator("nav[aria-label=Place] a").nth(1).click();
  await page.waitForURL(/phase=registered&place=/);
  assert.ok((await page.locator("#startup rect.c-boot").count()) > 0);
  await page.context().close();
});

test("the editor of rules offers names to the keyboard, and lists them without its script", async () => {
  const page = await look("/rules/firefly");
  let hear;
  const heard = new Promise((done) => { hear = done; });
  await page.route("**/live-page*", (route) => heard.then(() => route.fallback()));
  await page.reload();
  const field = page.locator("#text");
  await field.fill("");
  await field.pressSequentially('{"maxc');
  const option = page.locator("#offered [aria-selected=true]");
  await option.waitFor();
  // Changes of the page come while the list is open.
  const changed = page.evaluate(() => new Promise((done) => {
    addEventListener("changed", ({ detail }) => detail.id === "editor" && done());
  }));
  hear();
  await changed;
  assert.match(await option.textContent(), /^maxCapacity /);
  assert.equal(await field.getAttribute("aria-activedescendant"), await option.getAttribute("id"));
  assert.deepEqual(await axe(page), []);
  await field.press("Enter");
  assert.equal(await field.inputValue(), '{"maxCapacity');
  assert.equal(await page.locator("#offered").isVisible(), false);
  await field.pressSequentially('": "us-e');
  await option.waitFor();
  await field.press("ArrowDown");
  await field.press("Escape");
  assert.equal(await page.locator("#offered").isVisible(), false);
  await page.context().close();
  const plain = await look("/rules/firefly", { script: false });
  assert.equal(await plain.locator("[data-names] code", { hasText: /^maxCapacity$/ }).isVisible(), true);
  await plain.context().close();
});

test("the title of the window says what is wrong, and problems have times for people", async () => {
  const page = await look("/");
  assert.match(await page.title(), /^▲ \d+ · Fleetwright$/);
  assert.doesNotMatch(await page.textContent("#problems"), /\d{4}-\d\d-\d\dT/);
  await page.context().close();
});

test("a question about a change is answered on the open page, and the answer can be shared", async () => {
  const page = await look("/pools/proj-release/decision");
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
  const { pathname, search } = new URL(page.url());
  const shared = await look(pathname + search, { script: false });
  // Without its script a page has to be loaded again.
  while (!/With a maximum/.test(await shared.textContent("main .lede"))) {
    await shared.click("text=look again");
  }
  assert.ok((await shared.locator("#answer svg.ch").count()) > 1);
  await shared.context().close();
  await page.context().close();
});

test("a pause shows on an open page, and is in the audit log with its reason", async () => {
  const watching = await look("/providers");
  const acting = await look("/pools/proj-build/linux-large");
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
  const page = await look("/");
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
  const page = await open(first.link);
  await page.click("main button");
  const stream = page.locator("#stream");
  await stream.filter({ hasText: /^live$/ }).waitFor();
  await page.fill("input[type=search]", "default");
  await first.stop({ keep: true });
  await stream.filter({ hasText: "not live" }).waitFor();
  const second = await startServer([], { port, folder: first.folder });
  await stream.filter({ hasText: /^live$/ }).waitFor();
  assert.equal(await page.inputValue("input[type=search]"), "default");
  await page.context().close();
  await second.stop();
});

test("a task's worker comes and goes on an open page, and evil names stay texts", async () => {
  const evil = "<img src=x onerror=alert(1)>";
  const server = await startServer();
  const page = await open(server.link);
  page.on("dialog", () => assert.fail("a script of a task's name ran"));
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
  await page.context().close();
  await server.stop();
});
