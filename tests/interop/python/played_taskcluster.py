"""The worker manager of a Taskcluster, as far as `import taskcluster` reads it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TIMES = {
    "created": "2026-11-01T00:00:00.000Z",
    "expires": "2036-11-01T00:00:00.000Z",
    "lastModified": "2026-11-01T00:00:00.000Z",
    "lastChecked": "2026-11-01T00:00:00.000Z",
}
ROLE = {"roleId": "team", "description": "", "scopes": ["a:b"], "expandedScopes": []}


class Taskcluster:
    """`pools`: the provider and the config of each pool."""

    def __init__(self, pools):
        self.pools = {
            pool_id: {
                "workerPoolId": pool_id,
                "providerId": provider_id,
                "description": "A pool of the deployment.",
                "owner": "ops@example.com",
                "emailOnError": False,
                "config": config,
                "created": TIMES["created"],
                "lastModified": TIMES["lastModified"],
            }
            for pool_id, (provider_id, config) in pools.items()
        }
        self.archived = {}  # Launch configs by pool, as the API lists them.
        self.workers = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, pool_id, group, worker_id, launch_config_id, state="running"):
        """A row of its database."""
        row = {
            "workerPoolId": pool_id,
            "workerGroup": group,
            "workerId": worker_id,
            "providerId": self.pools[pool_id]["providerId"],
            "launchConfigId": launch_config_id,
            "capacity": 1,
            "state": state,
            **TIMES,
        }
        self.workers.append(row)

    def answer(self, path, query):
        """None: there is no such thing."""
        match path.removeprefix("/api/").split("/", 3):
            case ["worker-manager", "v1", "worker-pools"]:
                return {"workerPools": list(self.pools.values())}
            case ["auth", "v1", "roles2", ""]:
                return {"roles": [ROLE]}
            case ["worker-manager", "v1", "workers", pool_id]:
                [state] = query["state"]
                rows = [it for it in self.workers if it["workerPoolId"] == unquote(pool_id)]
                return {"workers": [it for it in rows if it["state"] == state]}
            case ["worker-manager", "v1", "worker-pool", rest]:
                pool_id = unquote(rest.removesuffix("/launch-configs"))
                return {"workerPoolLaunchConfigs": self.archived.get(pool_id, [])}
        return None

    def _handler(taskcluster):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                reply = taskcluster.answer(url.path, parse_qs(url.query))
                body = json.dumps(reply or {"code": "ResourceNotFound", "message": self.path})
                self.send_response(200 if reply else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        return Handler
