// The official JavaScript client against a running server, found through the TASKCLUSTER_ variables.

import assert from "node:assert/strict";
import { test } from "node:test";
import taskcluster from "taskcluster-client";

const SECRET = "StaticSecret0StaticSecret1StaticSecret2abcde";
const LIST = "worker-manager:list-worker-pools";

// Nothing is retried: a 5xx must be seen.
const options = { ...taskcluster.fromEnvVars(), retries: 0 };
const fleet = new taskcluster.WorkerManager(options);
const auth = new taskcluster.Auth(options);

const poolDefinition = (description) => ({
  providerId: "static",
  description,
  owner: "ops@example.com",
  emailOnError: false,
  config: { workerConfig: { greeting: "hello" } },
});

const connectedWith = (credentials) =>
  new taskcluster.WorkerManager({ ...options, credentials });

async function gather(call, key) {
  const items = [];
  const query = { limit: 1 };
  do {
    const page = await call(query);
    assert.ok(page[key].length <= 1);
    items.push(...page[key]);
    query.continuationToken = page.continuationToken;
  } while (query.continuationToken);
  return items;
}

async function refusal(promise) {
  return promise.then(
    () => assert.fail("this call should have been refused"),
    (error) => error,
  );
}

test("a pool and its worker live through their whole life", async () => {
  const poolId = "interop/javascript";
  await fleet.createWorkerPool(poolId, poolDefinition("From JavaScript."));
  const changed = await fleet.updateWorkerPool(poolId, poolDefinition("Changed."));
  assert.equal(changed.description, "Changed.");
  const pools = await gather((query) => fleet.listWorkerPools(query), "workerPools");
  assert.ok(pools.some((pool) => pool.workerPoolId === poolId));

  const worker = [poolId, "rack-1", "host-1"];
  const created = await fleet.createWorker(...worker, {
    expires: taskcluster.fromNowJSON("1 hour"),
    providerInfo: { staticSecret: SECRET },
  });
  assert.equal(created.state, "running");

  const anonymous = new taskcluster.WorkerManager({ rootUrl: options.rootUrl, retries: 0 });
  const registered = await anonymous.registerWorker({
    workerPoolId: poolId,
    providerId: "static",
    workerGroup: "rack-1",
    workerId: "host-1",
    workerIdentityProof: { staticSecret: SECRET },
  });
  assert.deepEqual(registered.workerConfig, { greeting: "hello" });

  const itself = connectedWith(registered.credentials);
  const renewed = await itself.reregisterWorker({
    workerPoolId: poolId,
    workerGroup: "rack-1",
    workerId: "host-1",
    secret: registered.secret,
  });
  assert.notEqual(renewed.secret, registered.secret);

  const reported = await connectedWith(renewed.credentials).reportWorkerError(poolId, {
    kind: "worker-error",
    title: "Disk is full",
    description: "There is no room for the checkout.",
    extra: {},
    workerGroup: "rack-1",
    workerId: "host-1",
  });
  const errors = await gather(
    (query) => fleet.listWorkerPoolErrors(poolId, query),
    "workerPoolErrors",
  );
  assert.deepEqual(errors, [reported]);

  await fleet.removeWorker(...worker);
  assert.equal((await fleet.worker(...worker)).state, "stopped");
  assert.equal((await fleet.deleteWorkerPool(poolId)).providerId, "null-provider");
});

test("a client and a role live through their whole life", async () => {
  const clientId = "interop/javascript";
  const { accessToken } = await auth.createClient(clientId, {
    expires: taskcluster.fromNowJSON("1 hour"),
    description: "From JavaScript.",
    scopes: ["assume:interop-javascript"],
  });
  const limited = connectedWith({ clientId, accessToken });
  const before = await refusal(limited.listWorkerPools());
  assert.deepEqual([before.statusCode, before.code], [403, "InsufficientScopes"]);

  await auth.createRole("interop-javascript", { description: "For its list.", scopes: [LIST] });
  await limited.listWorkerPools();
  await auth.deleteRole("interop-javascript");
  await auth.deleteClient(clientId);
  const after = await refusal(limited.listWorkerPools());
  assert.deepEqual([after.statusCode, after.code], [401, "AuthenticationFailed"]);
});

test("a secret lives through its whole life", async () => {
  const secrets = new taskcluster.Secrets(options);
  const name = "project/interop javascript";
  const written = { secret: { token: "abc", deep: [1] }, expires: taskcluster.fromNowJSON("1 hour") };
  await secrets.set(name, written);
  assert.deepEqual(await secrets.get(name), written);
  const names = await gather((query) => secrets.list(query), "secrets");
  assert.ok(names.includes(name));
  await secrets.remove(name);
  const error = await refusal(secrets.get(name));
  assert.deepEqual([error.statusCode, error.code], [404, "ResourceNotFound"]);
  assert.match(error.message, /^Secret not found/);
});

test("temporary credentials are held to their scopes", async () => {
  const { clientId, accessToken } = options.credentials;
  const held = taskcluster.createTemporaryCredentials({
    clientId: "interop/temporary",
    expiry: taskcluster.fromNow("1 hour"),
    scopes: [LIST],
    credentials: { clientId, accessToken },
  });
  await connectedWith(held).listWorkerPools();
  const refused = await refusal(connectedWith(held).listProviders());
  assert.equal(refused.statusCode, 403);
  assert.match(refused.message, /interop\/temporary does not have sufficient scopes/);
});

test("a signed URL can be fetched by anything", async () => {
  const url = fleet.buildSignedUrl(fleet.listProviders, {}, { expiration: 60 });
  const answer = await fetch(url);
  assert.equal(answer.status, 200);
  assert.equal((await answer.json()).providers[0].providerId, "static");
});

test("an error carries what the client reads from it", async () => {
  const error = await refusal(fleet.workerPool("interop/nowhere"));
  assert.deepEqual([error.statusCode, error.code], [404, "ResourceNotFound"]);
  assert.match(error.message, /Worker pool does not exist/);
  assert.equal(error.body.requestInfo.method, "workerPool");
});

test("a method that is not served is named", async () => {
  const index = new taskcluster.Index(options);
  const error = await refusal(index.findTask("project.a"));
  assert.deepEqual([error.statusCode, error.code], [404, "ResourceNotFound"]);
  assert.match(error.message, /does not serve `index\.findTask`/);
});
