"""Assistants: the official client of the Model Context Protocol reads a fleet."""

import json
import subprocess

import anyio
import pytest
from fleet import gather, pool_definition, unique
from fleet_server import binary
from mcp import ClientSession, StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

NEWEST = "2025-11-25"
TOOLS = {
    "status", "explain_task", "explain_pool", "explain_worker", "cost", "wait", "list_pools",
    "show_pool", "list_workers", "list_tasks", "list_task_group", "error_causes",
}  # fmt: skip
COMMAND_SECONDS = 60


def program(server, *arguments):
    environment = {
        "TASKCLUSTER_ROOT_URL": server.root_url,
        "TASKCLUSTER_CLIENT_ID": server.credentials["clientId"],
        "TASKCLUSTER_ACCESS_TOKEN": server.credentials["accessToken"],
    }
    return StdioServerParameters(
        command=str(binary()), args=["mcp", *arguments], env=environment
    )


def text_of(result):
    assert [part.type for part in result.content] == ["text"]
    return result.content[0].text


def ask(server, talk, *arguments):
    """Runs a conversation in one session."""

    async def session():
        async with stdio_client(program(server, *arguments)) as (read, write):
            async with ClientSession(read, write) as session:
                return await talk(session)

    return anyio.run(session)


def test_the_official_client_negotiates_lists_and_calls(server):
    async def talk(session):
        hello = await session.initialize()
        assert hello.protocol_version == NEWEST
        assert hello.server_info.name == "fleetwright"
        await session.send_ping()
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations.read_only_hint for tool in tools)
        return json.loads(text_of(await session.call_tool("status", {})))

    assert "isWell" in ask(server, talk)


def test_a_client_that_prefers_newer_versions_falls_back(server):
    async def talk():
        async with Client(program(server)) as client:
            return await client.call_tool("list_pools", {})

    assert not anyio.run(talk).is_error


def test_pools_and_tasks_are_read(server, owner):
    pool = f"proj-mcp/{unique('pool')}"
    owner.worker_manager.createWorkerPool(pool, pool_definition())

    async def talk(session):
        await session.initialize()

        async def call(name, **arguments):
            return json.loads(text_of(await session.call_tool(name, arguments)))

        shown = await call("show_pool", workerPoolId=pool)
        assert shown["workerPoolId"] == pool
        listed = await call("list_pools")
        assert listed["workerPoolsStats"]
        assert (await call("list_tasks", workerPoolId=pool))["tasks"] == []
        assert "now" in await call("explain_pool", workerPoolId=pool)
        assert "totalMs" in await call("wait", since="24h")
        assert "total" in await call("cost", by="pool")
        assert (await call("list_workers", workerPoolId=pool))["workers"] == []

    ask(server, talk)


def test_a_refusal_of_the_server_is_an_answer_with_an_error(server):
    async def talk(session):
        await session.initialize()
        for name, arguments, said in [
            ("show_pool", {"workerPoolId": "proj-mcp/none"}, "does not exist"),
            ("show_pool", {}, "workerPoolId is needed"),
            ("cost", {"by": "week"}, "must be one of"),
        ]:
            answer = await session.call_tool(name, arguments)
            assert answer.is_error
            assert said in text_of(answer)

    ask(server, talk)


def test_files_are_planned_and_never_applied(server, owner, tmp_path):
    role = f"mcp:{unique('role')}"
    (tmp_path / "roles.yaml").write_text(f"roleId: {role}\nscopes: [a]\n")

    async def talk(session):
        await session.initialize()
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS | {"plan"}
        plan = await session.call_tool("plan", {"path": "roles.yaml"})
        assert f"+ role {role} (1 scope)" in text_of(plan)
        outside = await session.call_tool("plan", {"path": "../x"})
        assert outside.is_error and "must be in the folder" in text_of(outside)

    ask(server, talk, "--folder", str(tmp_path))
    listed = gather(owner.auth.listRoleIds, "roleIds")
    assert role not in listed


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ('{"jsonrpc":"2.0","id":1}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"nosuch"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nosuch"}}', -32602),
        ("x" * (1 << 20) + "x", -32600),
    ],
)
def test_wrong_messages_have_the_codes_of_the_specification(server, line, code):
    ping = '{"jsonrpc":"2.0","id":"last","method":"ping"}'
    quiet = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    done = subprocess.run(
        [binary(), "mcp"],
        env=program(server).env,
        input=f"{line}\n{quiet}\n{ping}\n",
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    refused, answered = map(json.loads, done.stdout.splitlines())
    assert refused["error"]["code"] == code
    assert answered == {"jsonrpc": "2.0", "id": "last", "result": {}}
