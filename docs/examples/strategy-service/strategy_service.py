"""A strategy service: the cheapest machines for waiting tasks. See docs/strategies.md."""
import base64, hashlib, hmac, json, os, re, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def is_signed(request, body):
    hawk = dict(re.findall(r'(\w+)="([^"]*)"', request.headers.get("Authorization", "")))
    digest = hashlib.sha256(b"hawk.1.payload\napplication/json\n%s\n" % body).digest()
    host, _, port = request.headers.get("Host", "").partition(":")
    parts = ["hawk.1.header", hawk.get("ts", ""), hawk.get("nonce", ""), "POST", request.path,
             host, port or "80", base64.b64encode(digest).decode(), "", ""]
    mac = hmac.digest(os.environ["STRATEGY_SECRET"].encode(), "\n".join(parts).encode(), "sha256")
    is_ours = hmac.compare_digest(base64.b64encode(mac), hawk.get("mac", "").encode())
    return is_ours and abs(time.time() - int(hawk["ts"])) < 60  # port 80: for https, use 443

def plan(view):
    pending, units, launches, stop = view["demand"]["pending"], view["capacity"], [], []
    idle = max(0, units["running"] - view["demand"]["claimed"])
    missing, spare = pending - idle - units["requested"] - units["intended"], idle - pending
    for offer in sorted(view["offers"], key=lambda offer: offer.get("bid", {}).get("price", 0)):
        machines = min(offer["maxMachines"], -(-missing // offer["capacityPerInstance"]))
        if machines > 0:
            launches.append({"launchConfigId": offer["launchConfigId"], "machines": machines})
            missing -= machines * offer["capacityPerInstance"]
    for worker in sorted(view["workers"], key=lambda worker: not worker["askedToStop"]):
        spare += worker["capacity"] if worker["askedToStop"] else 0  # not counted as running
        if worker["canStop"] and worker["capacity"] <= spare:
            stop.append({key: worker[key] for key in ("workerGroup", "workerId")})
            spare -= worker["capacity"]
    return {"version": 1, "launches": launches, "stop": stop, "reasons": [f"{idle} units are idle"]}

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        known = is_signed(self, body)
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps(plan(json.loads(body)) if known else {}).encode())
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("listening on port", server.server_port, flush=True)
server.serve_forever()
