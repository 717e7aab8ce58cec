// The server that tests of pages start for themselves.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { closeAll, open, startServer } from "./browser.mjs";

after(closeAll);

test("a server starts on its own port, answers the browser, and is started again on its folder", async () => {
  const first = await startServer();
  const page = await open(`${first.url}/sign-in`);
  assert.equal(new URL(page.url()).host, new URL(first.url).host);
  // The script of all pages ran.
  assert.equal(await page.locator("html.js").count(), 1);
  assert.deepEqual(page.problems, []);
  await first.stop({ keep: true });
  await assert.rejects(fetch(first.url));
  const second = await startServer([], { folder: first.folder });
  assert.equal((await fetch(`${second.url}/`)).status < 500, true);
  await second.stop();
});

test("a server that cannot start says why", async () => {
  await assert.rejects(startServer(["--no-such-flag"]), /no-such-flag/);
});
