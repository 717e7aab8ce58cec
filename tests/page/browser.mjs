// What tests of pages share: a browser, pages in all their looks, axe, and a server of their own.

import { spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { createInterface } from "node:readline";

import axeCore from "axe-core";
import { chromium } from "playwright-core";

const PROGRAM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const BINARY = process.env.FLEETWRIGHT_BINARY ?? "target/debug/fleetwright";
const READY = /^fleetwright(?: demo)? is ready at (.+)$/;
const LINK = /^ {2}pages +(\S+)$/;
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
// No test depends on the speed of the machine: this only ends one that hangs.
export const HANGS_MS = 300_000;
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript" };

let launched;

/** The browser of this process. `closeAll` ends it. */
export function browser() {
  launched ??= chromium.launch({
    timeout: HANGS_MS,
    executablePath: PROGRAM,
    args: [
      "--no-sandbox", // Tests may run as root.
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  return launched;
}

/**
 * A page of its own, without the cookies of others.
 *
 * `theme` is `light` or `dark`; `width` and `height` are in pixels; with `script: false` no script of
 * the page runs; `forcedColors` is that of Playwright, and `state` that of a signed-in browser.
 * `page.problems` are the errors of its scripts and of its policy.
 */
export async function open(address, look = {}) {
  const context = await (await browser()).newContext({
    colorScheme: look.theme ?? "light",
    viewport: { width: look.width ?? 1280, height: look.height ?? 900 },
    javaScriptEnabled: look.script ?? true,
    forcedColors: look.forcedColors ? "active" : "none",
    storageState: look.state,
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(HANGS_MS);
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.problems.push(message.text());
  });
  const answer = await page.goto(address);
  page.status = answer?.status();
  return page;
}

/** Signs a browser in by a link. Returns its state, for the pages of others. */
export async function signIn({ link, url }) {
  const page = await open(link);
  await page.click("main button");
  await page.waitForURL(`${url}/`);
  const state = await page.context().storageState();
  await page.context().close();
  return state;
}

/** What axe finds, a line for each kind with its first element. It runs outside of the page's policy. */
export async function axe(page) {
  await page.evaluate(axeCore.source);
  const results = await page.evaluate(
    (options) => globalThis.axe.run(document, options),
    { runOnly: TAGS, resultTypes: ["violations"], preload: false },
  );
  return results.violations.map(
    ({ id, help, nodes }) => `${id}: ${help} (${nodes.length}): ${nodes[0].html.slice(0, 200)}`,
  );
}

/** By how many pixels the page is wider than its window. */
export function sidewaysScroll(page) {
  return page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth - clientWidth;
  });
}

/** Serves the files of a folder until `stop()`. */
export async function serveFolder(folder) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    // Browsers ask for it by themselves.
    if (pathname === "/favicon.ico") return response.writeHead(204).end();
    const file = join(folder, normalize(decodeURIComponent(pathname)));
    const known = await stat(file).catch(() => undefined);
    if (!known?.isFile()) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "text/plain" });
    createReadStream(file).pipe(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: () => new Promise((done) => {
      server.closeAllConnections();
      server.close(done);
    }),
  };
}

/**
 * Starts the program as `fleetwright up`, or with another command, with a folder of its own and a free port, and waits until it is
 * ready. `args` are further arguments, `folder` is that of a server that was stopped with `keep`.
 */
export async function startServer(args = [], { folder, port, command = "up" } = {}) {
  const data = folder ?? (await mkdtemp(join(tmpdir(), "fleetwright-page-")));
  const listen = `127.0.0.1:${port ?? 0}`;
  const child = spawn(BINARY, [command, "--data", data, "--listen", listen, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines = [];
  const ready = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        lines.push(line);
        // The link to the pages comes after the line that says so.
        const link = LINK.exec(line)?.[1];
        const url = lines.map((said) => READY.exec(said)?.[1]).find(Boolean);
        if (link && url) resolve({ url: url.trim(), link });
      });
    }
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`ended with ${code}:\n${lines.join("\n")}`)));
  });
  /** Runs a client command with the owner's credentials. */
  const run = async (command) => {
    const script = '. "$0" && exec "$@"';
    const ran = spawn("sh", ["-c", script, join(data, "owner.env"), BINARY, ...command], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    const said = [];
    ran.stderr.on("data", (text) => said.push(text));
    const [code] = await once(ran, "close");
    if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}: ${said.join("")}`);
  };
  const stop = async ({ keep = false } = {}) => {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    }
    if (!keep) await rm(data, { recursive: true, force: true });
  };
  try {
    return { ...(await ready), folder: data, lines, run, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Ends the browser. For `after` of a file's tests. */
export async function closeAll() {
  if (launched) await (await launched).close();
  launched = undefined;
}
