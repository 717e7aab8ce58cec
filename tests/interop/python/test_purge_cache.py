"""Purge requests, through the official client."""

from fleet import Fleet, assert_refused, refusal, temporary, unique


def test_a_purged_cache_is_listed_for_its_pool_until_it_was_heard_of(server, owner):
    pool, cache = f"interop/{unique('purged')}", "a cache/with: odd name"
    assert owner.purge_cache.purgeRequests(pool) == {"requests": []}
    assert owner.purge_cache.purgeCache(pool, {"cacheName": cache}) is None
    [request] = owner.purge_cache.purgeRequests(pool)["requests"]
    assert request["cacheName"] == cache
    assert f"{request['provisionerId']}/{request['workerType']}" == pool
    again = {"since": request["before"]}
    assert owner.purge_cache.purgeRequests(pool, query=again)["requests"] == [request]
    later = {"since": "2999-01-01T00:00:00.000Z"}
    assert owner.purge_cache.purgeRequests(pool, query=later)["requests"] == []
    assert request in owner.purge_cache.allPurgeRequests()["requests"]


def test_a_worker_asks_for_its_own_pool_only(server, owner):
    scopes = ["purge-cache:purge-requests::interop/mine", "purge-cache:interop/mine:c"]
    worker = Fleet(server.root_url, temporary(server.credentials, scopes)).purge_cache
    worker.purgeRequests("interop/mine")
    worker.purgeCache("interop/mine", {"cacheName": "c"})
    failure = refusal(worker.purgeCache, "interop/mine", {"cacheName": "other"})
    assert_refused(failure, 403, "InsufficientScopes", "purgeCache")
    failure = refusal(worker.allPurgeRequests)
    assert_refused(failure, 403, "InsufficientScopes", "allPurgeRequests")
