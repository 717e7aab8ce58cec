// The pages of the program, on a fleet that works: each picture, in its looks, and some actions.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { axe, browser, closeAll, sidewaysScroll, startServer } from "./browser.mjs";

const PAGES = [
  "/",
  "/waiting",
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

/** A page of a signed-in browser, which notes errors of scripts and of the policy. */
async function look(options = {}) {
  const context = await (await browser()).newContext({ storageState: state, ...options });
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
  const context = await (await browser()).newContext();
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
  const context = await (await browser()).newContext();
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

test("a pause shows on an open page, and is in the audit log with its reason", async () => {
  const watching = await look();
  await watching.goto(`${demo.url}/providers`);
  const acting = await look();
  await acting.goto(`${demo.url}/pools/proj-build/linux-large`);
  await acting.click("button[popovertarget=set-override]");
  await acting.fill("#set-override [name=reason]", "a look at it");
  assert.match(await acting.textContent("#set-override .cmd"), /--reason 'a look at it'/);
  await acting.click("#set-override button.go");
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
