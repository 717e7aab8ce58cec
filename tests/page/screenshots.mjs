// Makes the pictures of README and docs/page.md from the demo:
//
//   node tests/page/screenshots.mjs docs/pictures
//
// in a folder with the packages of the tests of pages (`./check` installs them in `.check/page`).

import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { browser, closeAll, startServer } from "./browser.mjs";

const PICTURES = [
  { name: "start", theme: "light", width: 1000, height: 640, path: "/", shows: "#pools tbody tr" },
  {
    name: "pool",
    theme: "dark",
    width: 1000,
    height: 900,
    path: "/pools/proj-build/linux-large?range=6h",
    // The demo has just begun.
    shows: "#decision h3",
  },
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
  for (const { name, theme, width, height, path, shows } of PICTURES) {
    const viewport = { width, height };
    const context = await (await browser()).newContext({ storageState, viewport, colorScheme: theme });
    const page = await context.newPage();
    await page.goto(`${demo.url}${path}`);
    await page.locator(shows).first().waitFor({ timeout: 300_000 });
    await page.screenshot({ path: join(folder, `${name}.png`) });
    await context.close();
  }
} finally {
  await closeAll();
  await demo.stop();
}
