// A browser that was left open while the server was upgraded.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { browser, closeAll, startServer } from "./browser.mjs";

let server;

before(async () => {
  server = await startServer();
});

after(async () => {
  await closeAll();
  await server?.stop();
});

test("a page of another release is loaded again, once", async () => {
  const context = await (await browser()).newContext();
  const page = await context.newPage();
  await page.goto(server.link);
  await page.click("main button");
  await page.locator("#stream", { hasText: /^live$/ }).waitFor();
  // The next connection is answered as by a server of another release; those after it by this one.
  let upgrades = 0;
  await page.route("**/live-page*", async (route) => {
    upgrades += 1;
    if (upgrades > 1) return route.fallback();
    const now = new Date().toISOString();
    const hello = `event: hello\ndata: {"release":"another","now":"${now}"}\n\n`;
    return route.fulfill({ contentType: "text/event-stream", body: hello });
  });
  let loads = 0;
  const again = new Promise((done) => {
    page.on("load", () => {
      loads += 1;
      if (loads === 2) done();
    });
  });
  await page.reload();
  await again;
  await page.locator("#stream", { hasText: /^live$/ }).waitFor();
  assert.equal(loads, 2, "it was loaded by us, and once by itself");
  await context.close();
});
