"""Attested documents of machines on Azure, signed by authorities that `openssl` makes."""

import base64
import json
import pathlib
import subprocess
import tempfile

# Certificates are valid for all times that tests use.
VALID = ["-startdate", "20200101000000Z", "-enddate", "20450101000000Z"]
CONFIG = """[ca]
default_ca = d
[d]
database = {folder}/index
new_certs_dir = {folder}
serial = {folder}/serial
default_md = sha256
policy = p
unique_subject = no
[p]
commonName = supplied
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[issuer]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
{access}
"""
# The address of the issuer in a certificate, and what it is good for.
ADDRESSES = {
    "good": "caIssuers;URI:http://cacerts.digicert.com/fake-issuer.crt",
    "untrusted-address": "caIssuers;URI:http://issuers.example.com/fake-issuer.crt",
}


def access_of(address):
    """The extension for `good` and so on, or for `addresses-N`."""
    if not address.startswith("addresses-"):
        return f"authorityInfoAccess = {ADDRESSES[address]}"
    urls = [f"http://www.microsoft.com/pkiops/certs/{n}.crt"
            for n in range(int(address.removeprefix("addresses-")))]
    named = ", ".join(f"caIssuers;URI:{url}" for url in urls)
    return f"authorityInfoAccess = {named}" if urls else ""


class Authority:
    """A root, an issuer below it, and signers below that."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fake-azure-pki.")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "index").touch()
        (self.path / "serial").write_text("1000\n")
        self.make("root", "Fake Root", "root", None)
        self.make("issuer", "Fake Issuer", "issuer", "root")

    def run(self, *arguments, data=None):
        done = subprocess.run(
            ["openssl", *arguments], input=data, capture_output=True, check=False, cwd=self.path
        )
        if done.returncode != 0:
            raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.decode()}")
        return done.stdout

    def make(self, name, common_name, section, issuer, address="good"):
        if (self.path / f"{name}.crt").exists():
            return
        config = self.path / "config"
        config.write_text(CONFIG.format(folder=self.path, access=access_of(address)))
        self.run("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={common_name}",
                 "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signer = ["-selfsign", "-keyfile", f"{name}.key"]
        if issuer:
            signer = ["-keyfile", f"{issuer}.key", "-cert", f"{issuer}.crt"]
        self.run("ca", "-batch", "-notext", "-config", "config", "-extensions", section,
                 "-in", f"{name}.csr", "-out", f"{name}.crt", *VALID, *signer)

    def der(self, name):
        return self.run("x509", "-in", f"{name}.crt", "-outform", "DER")

    def pem(self, name):
        return (self.path / f"{name}.crt").read_text()

    def sign(self, content, signer="good", form="good"):
        """The base64 text of a document; forms other than `good` are wrong."""
        subjects = {"wrong-subject": "evil.example.com", "look-alike": "evilmetadata.azure.com"}
        subject = subjects.get(signer, "westus.metadata.azure.com")
        has_own = signer in ADDRESSES or signer.startswith("addresses-")
        address = signer if has_own else "good"
        issuer = "root" if signer == "direct" else "issuer"
        if signer == "other-root":
            self.make("other", "Other Root", "root", None)
            issuer = "other"
        self.make(f"leaf-{signer}", subject, "leaf", issuer, address)
        options = [] if form == "attributes" else ["-noattr"]
        if form == "two":
            options += ["-certfile", "issuer.crt"]
        if form == "none":
            options += ["-nocerts"]
        digest = "sha1" if form == "sha1" else "sha256"
        message = self.run(
            "cms", "-sign", "-nodetach", "-binary", "-outform", "DER", "-md", digest,
            "-signer", f"leaf-{signer}.crt", "-inkey", f"leaf-{signer}.key", *options,
            data=content.encode(),
        )
        if form == "changed":
            message = message.replace(b'"vmId"', b'"VmId"')
        if form == "cut":
            message = message[:-20]
        return base64.b64encode(message).decode()

    def document(self, vm_id, expires="01/01/44 00:00:00 -0000", **how):
        content = {
            "licenseType": "", "nonce": "", "plan": {}, "sku": "", "subscriptionId": "",
            "timeStamp": {"createdOn": "01/01/24 00:00:00 -0000", "expiresOn": expires},
            "vmId": vm_id,
        }
        return self.sign(how.pop("content", None) or json.dumps(content), **how)


def server_certificate(folder):
    """A self-signed certificate of this machine, for clients that insist on TLS."""
    certificate, key = f"{folder}/server.crt", f"{folder}/server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )
    return certificate, key
