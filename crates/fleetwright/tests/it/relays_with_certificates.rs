//! Relays that require host certificates: signed by the authority, and for the host's own name.

use std::process::Command;

use testing::dns;

use crate::relay_world::{POOL, Site};
use crate::world::Done;

const MAKE: &str = r#"
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
    -subj /CN=authority -keyout ca.key -out ca.pem
sign() { # file, alternative name, authority
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.csr"
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$3.pem" -CAkey "$3.key" -CAcreateserial -days 30 \
        -extfile "$1.ext" -out "$1.pem"
    cat "$1.pem" "$1.key" > "$1.both"
}
sign relay IP:127.0.0.1 ca
sign box-7 DNS:box-7.kk.fleet.test ca
sign box-8 DNS:box-8.kk.fleet.test ca
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
    -subj /CN=other -keyout other.key -out other.pem
sign forged DNS:box-7.kk.fleet.test other
"#;
const TLS: &str = "[tls]\ncertificate_file = \"relay.pem\"\nkey_file = \"relay.key\"\n\
    client_ca_file = \"ca.pem\"\n";

/// The status of a registration from this address, with this certificate, or why curl failed.
fn ask(site: &Site, url: &str, from: &str, certificate: Option<&str>) -> Result<String, i32> {
    let home = site.server.home.path(".");
    let mut command = Command::new("curl");
    command
        .args([
            "-sS",
            "-o",
            "reply",
            "-w",
            "%{http_code}",
            "--cacert",
            "ca.pem",
        ])
        .args(["-X", "POST", "--interface", from])
        .arg(format!("{url}/v1/registration"))
        .current_dir(home);
    if let Some(name) = certificate {
        command.args([
            "--cert",
            &format!("{name}.pem"),
            "--key",
            &format!("{name}.key"),
        ]);
    }
    let done = Done::of(command.output().unwrap());
    if done.code == 0 {
        Ok(done.out)
    } else {
        Err(done.code)
    }
}

#[test]
fn a_host_needs_a_certificate_of_the_authority_for_its_own_name() {
    let Some(site) = Site::start() else {
        return;
    };
    if !site.has_program("curl") {
        println!("skipped: there is no curl");
        return;
    }
    site.shell(MAKE);
    for host in ["7", "8"] {
        let (address, name) = (
            format!("127.9.8.{host}"),
            format!("box-{host}.kk.fleet.test"),
        );
        let record = format!("add {name} 60 A {address}");
        dns::update(site.dns[0], &[dns::pointer(&address, &name), record]);
    }
    let relay = site.relay(TLS);
    let url = relay.url().replace("http://", "https://");
    let asked = |from: &str, certificate| ask(&site, &url, from, certificate);
    assert_eq!(asked("127.9.8.7", Some("box-7")), Ok("200".to_owned()));
    assert_eq!(asked("127.9.8.8", Some("box-8")), Ok("200".to_owned()));
    // The address and the certificate name different hosts.
    assert_eq!(asked("127.9.8.7", Some("box-8")), Ok("403".to_owned()));
    relay.wait_for_log(
        "refused 127.9.8.7: ",
        "its certificate is not for box-7.kk.fleet.test",
    );
    // The certificate does not replace DNS.
    assert_eq!(asked("127.9.8.9", Some("box-7")), Ok("403".to_owned()));
    for certificate in [None, Some("forged")] {
        assert!(asked("127.9.8.7", certificate).is_err(), "{certificate:?}");
    }
    let workers = site.server.json(&["worker", "list", POOL]);
    assert_eq!(workers["workers"].as_array().unwrap().len(), 2);
}
