// Measures pages in Chromium. `bench pages` runs it, and says on standard input, as one line of JSON,
// what to measure; each answer is a line of JSON on standard output.

import { createInterface } from "node:readline";

import { browser, closeAll } from "./browser.mjs";

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

/** Signs in with a link, and tells the cookie and the name of the browser. */
async function signIn(link) {
  const context = await (await browser()).newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(link);
  await page.click("main button");
  await page.waitForURL((url) => url.pathname === "/");
  const cookies = await context.cookies();
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
  const agent = await page.evaluate(() => navigator.userAgent);
  await page.close();
  return { context, cookie, agent };
}

/** Visits a page several times, as one who has been there before: milliseconds of each visit. */
async function visit(context, url, times) {
  const page = await context.newPage();
  const visits = [];
  // The first one fills the browser's cache.
  for (let number = 0; number <= times; number += 1) {
    const answer = await page.goto(url, { waitUntil: "load" });
    const timing = await page.evaluate(async () => {
      const [entry] = performance.getEntriesByType("navigation");
      // The entry is complete after the handlers of the event.
      while (entry.loadEventEnd === 0) await new Promise((done) => setTimeout(done));
      const bytes = document.documentElement.outerHTML.length;
      return {
        status: entry.responseStatus,
        firstByteMs: entry.responseStart - entry.requestStart,
        completeMs: entry.loadEventEnd - entry.startTime,
        bytes,
        wireBytes: entry.encodedBodySize,
        elements: document.querySelectorAll("*").length,
      };
    });
    // A fleet may lack what the page shows.
    if (answer.status() !== 200) break;
    if (number > 0) visits.push(timing);
  }
  await page.close();
  return visits;
}

/** The first link of a page that begins with a path and goes on. */
async function find(context, url, path) {
  const page = await context.newPage();
  await page.goto(url);
  const links = await page.$$eval("main a[href]", (all) => all.map((a) => a.getAttribute("href")));
  await page.close();
  return links.find((href) => href.startsWith(path) && href.length > path.length);
}

/** Opens a page, and tells whenever its content changes. */
async function watch(context, url) {
  const page = await context.newPage();
  await page.exposeFunction("changed", (at) => say({ changedAt: at }));
  await page.goto(url);
  await page.evaluate(() => {
    // Times that grow old change by themselves.
    const isNews = ({ target }) => target.tagName !== "TIME";
    const changes = new MutationObserver((seen) => {
      if (seen.some(isNews)) globalThis.changed(Date.now());
    });
    changes.observe(document.querySelector("main"), { childList: true, subtree: true });
  });
  return page;
}

let signedIn;
let watched;
for await (const line of createInterface({ input: process.stdin })) {
  const { link, url, times, find: path, on, watch: watchedUrl } = JSON.parse(line);
  if (link) {
    signedIn = await signIn(link);
    say({ cookie: signedIn.cookie, agent: signedIn.agent });
  } else if (path) {
    say({ found: await find(signedIn.context, on, path) });
  } else if (url) {
    say({ visits: await visit(signedIn.context, url, times) });
  } else if (watchedUrl) {
    await watched?.close();
    watched = await watch(signedIn.context, watchedUrl);
    say({ watching: true });
  }
}
await closeAll();
