// Makes the pictures of README and docs/page.md from the demo:
//
//   node tests/page/screenshots.mjs docs/pictures
//
// in a folder with the packages of the tests of pages (`./check` installs them in `.check/page`).

import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { browser, closeAll, startServer } from "./browser.mjs";

/** The first link of this kind on a page. */
const linked = async (page, on, start) => {
  await page.goto(on);
  const links = await page.$$eval("main a[href]", (all) => all.map((a) => a.getAttribute("href")));
  return links.find((href) => href.startsWith(start) && href.length > start.length);
};

const PICTURES = [
  { name: "overview", theme: "light", width: 1120, height: 720, path: async () => "/" },
  {
    name: "pool",
    theme: "dark",
    width: 1120,
    height: 760,
    path: (page, url) => linked(page, `${url}/`, "/pools/"),
  },
  { name: "money", theme: "light", width: 1120, height: 620, path: async () => "/money" },
  { name: "narrow", theme: "dark", width: 375, height: 720, path: async () => "/" },
];

const folder = process.argv[2] ?? "docs/pictures";
await mkdir(folder, { recursive: true });
const demo = await startServer([], { command: "demo" });
try {
  const signingIn = await (await browser()).newContext();
  const first = await signingIn.newPage();
  await first.goto(demo.link);
  await first.click("main button");
  await first.waitForURL(`${demo.url}/`);
  const storageState = await signingIn.storageState();
  for (const { name, theme, width, height, path } of PICTURES) {
    const viewport = { width, height };
    const context = await (await browser()).newContext({ storageState, viewport, colorScheme: theme });
    const page = await context.newPage();
    await page.goto(new URL(await path(page, demo.url), demo.url).href);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    await context.close();
  }
} finally {
  await closeAll();
  await demo.stop();
}
