"""Worker pools and launch configs, through the official client."""

from fleet import (
    COUNTS,
    assert_refused,
    gather,
    google_config,
    launch_config,
    new_pool,
    parse_time,
    pool_definition,
    refusal,
    unique,
)

GOOGLE = "community-tc-workers-google"


def test_a_pool_is_created_read_updated_and_deleted(owner):
    fleet, pool_id = owner.worker_manager, f"interop/{unique('life')}"
    definition = pool_definition(config={"workerConfig": {"a": [1, None, "ü"]}})

    created = fleet.createWorkerPool(pool_id, definition)
    assert created.items() >= {"workerPoolId": pool_id, **definition}.items()
    assert all(created[count] == 0 for count in COUNTS)
    assert fleet.workerPool(pool_id) == created

    definition["description"] = "Changed."
    updated = fleet.updateWorkerPool(pool_id, definition)
    assert updated["description"] == "Changed."
    assert updated["created"] == created["created"]
    assert parse_time(updated["lastModified"]) >= parse_time(created["lastModified"])

    deleted = fleet.deleteWorkerPool(pool_id)
    assert deleted["providerId"] == "null-provider"
    assert deleted["owner"] == definition["owner"]


def test_creating_an_equal_pool_again_succeeds_and_a_different_one_conflicts(owner):
    pool_id = new_pool(owner)
    first = owner.worker_manager.workerPool(pool_id)

    again = owner.worker_manager.createWorkerPool(pool_id, pool_definition())
    assert again["created"] == first["created"]

    other = pool_definition(description="Another.")
    failure = refusal(owner.worker_manager.createWorkerPool, pool_id, other)
    assert_refused(failure, 409, "RequestConflict", "createWorkerPool", "already exists")


def test_a_deleted_pool_comes_back_by_an_update(owner):
    pool_id = new_pool(owner)
    owner.worker_manager.deleteWorkerPool(pool_id)
    revived = owner.worker_manager.updateWorkerPool(pool_id, pool_definition())
    assert revived["providerId"] == "static"


def test_launch_configs_get_ids_and_the_lifecycle_gets_defaults(owner):
    config = google_config(
        launch_config("us-east1-b"),
        launch_config("us-east1-c", launchConfigId="lc-by-hand", initialWeight=0.5),
        lifecycle={"registrationTimeout": 1800},
    )
    pool_id = new_pool(owner, provider=GOOGLE, config=config)

    stored = owner.worker_manager.workerPool(pool_id)["config"]
    assert stored["lifecycle"] == {
        "registrationTimeout": 1800,
        "reregistrationTimeout": 345600,
        "queueInactivityTimeout": 7200,
    }
    ids = [entry["workerManager"]["launchConfigId"] for entry in stored["launchConfigs"]]
    assert len(ids) == 2 and ids[1] == "lc-by-hand"

    # Sent again, or sent back as it was returned, it changes nothing.
    for same in [config, stored]:
        definition = pool_definition(GOOGLE, same)
        assert owner.worker_manager.createWorkerPool(pool_id, definition)["config"] == stored
        assert owner.worker_manager.updateWorkerPool(pool_id, definition)["config"] == stored


def test_a_launch_config_that_is_left_out_is_archived(owner):
    kept, dropped = launch_config("us-east1-b"), launch_config("us-east1-c")
    pool_id = new_pool(owner, provider=GOOGLE, config=google_config(kept, dropped))
    less = pool_definition(GOOGLE, google_config(kept))
    owner.worker_manager.updateWorkerPool(pool_id, less)

    listing = owner.worker_manager.listWorkerPoolLaunchConfigs
    active = gather(listing, "workerPoolLaunchConfigs", pool_id)
    everything = gather(listing, "workerPoolLaunchConfigs", pool_id, includeArchived="true")
    assert [entry["configuration"]["zone"] for entry in active] == ["us-east1-b"]
    assert {entry["configuration"]["zone"]: entry["isArchived"] for entry in everything} == {
        "us-east1-b": False,
        "us-east1-c": True,
    }


def test_pools_and_their_statistics_are_listed_page_by_page(owner):
    made = sorted(new_pool(owner) for _ in range(3))
    pools = gather(owner.worker_manager.listWorkerPools, "workerPools")
    ids = [pool["workerPoolId"] for pool in pools]
    assert ids == sorted(set(ids)) and set(made) <= set(ids)

    stats = gather(owner.worker_manager.listWorkerPoolsStats, "workerPoolsStats")
    assert [entry["workerPoolId"] for entry in stats] == ids

    pages = []
    owner.worker_manager.listWorkerPools(query={"limit": "2"}, paginationHandler=pages.append)
    assert [pool["workerPoolId"] for page in pages for pool in page["workerPools"]] == ids


def test_a_pool_without_workers_has_statistics_of_zeros(owner):
    stats = owner.worker_manager.workerPoolStats(new_pool(owner))["launchConfigStats"]
    assert [entry["launchConfigId"] for entry in stats] == ["unknown"]
    assert all(stats[0][count] == 0 for count in COUNTS)


def test_providers_are_listed_in_the_order_of_the_configuration(owner):
    providers = gather(owner.worker_manager.listProviders, "providers")
    ids = [provider["providerId"] for provider in providers]
    configured = ["static", GOOGLE, "community-tc-workers-azure", "community-tc-workers-aws"]
    assert ids[: len(configured)] == configured
    assert ids[len(configured) :] in ([], ["local", "fake"])  # `up` has two built-in ones more


def test_a_pool_that_does_not_exist_is_not_found(owner):
    for method in ["workerPool", "deleteWorkerPool", "workerPoolStats"]:
        failure = refusal(getattr(owner.worker_manager, method), "interop/nowhere")
        assert_refused(failure, 404, "ResourceNotFound", method, "Worker pool does not exist")
        assert failure.body["requestInfo"]["params"] == {"workerPoolId": "interop/nowhere"}


def test_a_definition_that_breaks_the_schema_is_refused_with_all_its_faults(owner):
    call, pool_id = owner.worker_manager.createWorkerPool, f"interop/{unique('bad')}"
    failure = refusal(call, pool_id, pool_definition(owner="nobody", more=1))
    text = "Schema Validation Failed!"
    assert_refused(failure, 400, "InputValidationError", "createWorkerPool", text)
    assert 'data/owner must match format "email"' in failure.body["message"]
    assert 'must NOT have additional properties: "more"' in failure.body["message"]

    lifecycle = {"queueInactivityTimeout": 2}
    definition = pool_definition(GOOGLE, google_config(lifecycle=lifecycle))
    failure = refusal(call, pool_id, definition)
    text = "queueInactivityTimeout must be >= 1200"
    assert_refused(failure, 400, "InputValidationError", "createWorkerPool", text)


def test_a_provider_that_is_not_configured_is_refused(owner):
    call, pool_id = owner.worker_manager.createWorkerPool, f"interop/{unique('bad')}"
    failure = refusal(call, pool_id, pool_definition("no-such-cloud"))
    assert_refused(failure, 400, "InputError", "createWorkerPool", "Invalid Provider")


def test_an_id_that_breaks_the_pattern_is_refused(owner):
    failure = refusal(owner.worker_manager.workerPool, "interop/Upper_Case")
    text = "Invalid URL patterns:"
    assert_refused(failure, 400, "InvalidRequestArguments", "workerPool", text)


def test_a_query_key_that_is_not_known_is_refused(owner):
    failure = refusal(owner.worker_manager.listWorkerPools, query={"colour": "red"})
    text = "Query-string parameter: colour is not supported!"
    assert_refused(failure, 400, "InvalidRequestArguments", "listWorkerPools", text)
