// Sign-in at a provider of OpenID Connect: another program, with pages of its own.

import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import Provider from "oidc-provider";

import { HANGS_MS, axe, browser, closeAll, startServer } from "./browser.mjs";

const ROLE = "login-identity:openid/ann@corp.example";

let folder;
let provider;
let server;

/** A provider that answers once `configure` has the address of the server. */
async function startProvider() {
  let begin;
  const begun = new Promise((done) => (begin = done));
  const http = createServer((request, response) => {
    begun.then((answer) => answer(request, response));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const issuer = `http://127.0.0.1:${http.address().port}`;
  const configure = (url) => {
    const made = new Provider(issuer, {
      clients: [
        {
          client_id: "fleetwright",
          client_secret: "a secret: with/letters",
          redirect_uris: [`${url}/sign-in/openid/return`],
          post_logout_redirect_uris: [`${url}/sign-in`],
        },
      ],
      cookies: { keys: ["a key of the test"] },
      claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["groups"] },
      findAccount: (_, id) => ({
        accountId: id,
        claims: () => ({
          sub: id,
          email: `${id}@corp.example`,
          email_verified: id !== "mallory",
          groups: id === "bob" ? ["ops"] : [],
        }),
      }),
    });
    begin(made.callback());
  };
  const stop = () => {
    http.closeAllConnections();
    http.close();
  };
  return { issuer, configure, stop };
}

/** A browser that knows nobody, and loads nothing from elsewhere. */
async function fresh(options = {}) {
  const context = await (await browser()).newContext(options);
  context.setDefaultTimeout(HANGS_MS);
  await context.route(
    (url) => url.hostname !== "127.0.0.1",
    (route) => route.abort(),
  );
  return context.newPage();
}

/** Signs in at the provider, from the page of the server that the browser shows. */
async function signIn(page, name) {
  await page.click("text=Sign in with Corp");
  await page.fill("[name=login]", name);
  await page.fill("[name=password]", "any");
  await page.click("button[type=submit]");
  // The provider asks for the consent on a page of its own.
  await page.locator("[name=login]").waitFor({ state: "detached" });
  await page.click("button[type=submit]");
  await page.waitForURL((url) => url.origin === server.url && !url.pathname.startsWith("/sign-in"));
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "fleetwright-openid-"));
  provider = await startProvider();
  const config = join(folder, "openid.toml");
  const lines = [
    "[page.openid]",
    `issuer = "${provider.issuer}"`,
    'client_id = "fleetwright"',
    'client_secret = "a secret: with/letters"',
    'name = "Corp"',
    'groups = "groups"',
  ];
  await writeFile(config, lines.join("\n"), { mode: 0o600 });
  server = await startServer(["--config", config]);
  provider.configure(server.url);
});

after(async () => {
  await closeAll();
  await server?.stop();
  provider?.stop();
  await rm(folder, { recursive: true, force: true });
});

test("a person gets rights by a role, acts under the own name, and signs out at both", async () => {
  const page = await fresh();
  await page.goto(`${server.url}/pools/local/default`);
  assert.deepEqual(await axe(page), []);
  await signIn(page, "ann");
  assert.match(await page.textContent("h1"), /No rights yet/);
  assert.match(await page.textContent("main"), new RegExp(`role create '${ROLE}'`));
  assert.deepEqual(await axe(page), []);

  const scopes = ["worker-manager:*", "fleetwright:*", "queue:*"];
  await server.run(["role", "create", ROLE, ...scopes.flatMap((scope) => ["--scope", scope])]);
  assert.equal((await page.reload()).status(), 200);
  assert.equal(new URL(page.url()).pathname, "/pools/local/default");
  assert.match(await page.textContent("header"), /openid\/ann@corp\.example/);
  await page.click("button[popovertarget=pause]");
  await page.fill("#pause [name=reason]", "a look at it");
  await page.click("#pause button.go");
  await page.locator("text=a look at it").first().waitFor();
  await page.goto(`${server.url}/events?type=override&entity=page-local-default`);
  assert.match(await page.textContent("main"), /openid\/ann@corp\.example/);

  await server.run(["role", "delete", ROLE, "--yes"]);
  assert.equal((await page.goto(`${server.url}/providers`)).status(), 403);
  assert.match(await page.textContent("h1"), /No rights yet/);

  await page.click("text=Sign out");
  assert.match(await page.textContent("h1"), /Signed out/);
  assert.deepEqual(await axe(page), []);
  await page.click("text=Sign out at Corp too");
  // The provider asks, and leads back.
  await page.click("button[value=yes]");
  await page.waitForURL(`${server.url}/sign-in*`);
  assert.equal((await page.goto(`${server.url}/`)).status(), 401);
  await page.click("text=Sign in with Corp");
  await page.locator("[name=login]").waitFor();
  await page.context().close();
});

test("a member of a group signs in without scripts, and sees the page that was asked for", async () => {
  await server.run(["role", "create", "openid-group:ops", "--scope", "worker-manager:*"]);
  const page = await fresh({ javaScriptEnabled: false });
  await page.goto(`${server.url}/rules`);
  await signIn(page, "bob");
  await page.waitForURL(`${server.url}/rules`);
  assert.match(await page.textContent("header"), /openid\/bob@corp\.example/);
  await page.context().close();
});

test("an address that is not verified names nobody", async () => {
  const page = await fresh();
  await page.goto(`${server.url}/`);
  await signIn(page, "mallory");
  assert.match(await page.textContent("main"), /login-identity:openid\/sub:mallory/);
  await page.context().close();
});

test("a person who refuses at the provider sees the reason", async () => {
  const page = await fresh();
  await page.goto(`${server.url}/sign-in`);
  await page.click("text=Sign in with Corp");
  await page.locator("[name=login]").waitFor();
  await page.click("text=Cancel");
  await page.waitForURL(`${server.url}/sign-in/openid/return*`);
  assert.match(await page.textContent("main"), /Corp refused the sign-in: access_denied/);
  assert.deepEqual(await axe(page), []);
  await page.context().close();
});
