//! A provider of OpenID Connect on loopback, which misbehaves as a test wants.
//!
//! It signs with another library than the one that verifies.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const CLIENT: &str = "fleet/1";
pub(crate) const SECRET: &str = "hunter:2";

/// A key that signs ID tokens.
pub(crate) enum Signer {
    Ed(Box<Ed25519KeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
    /// An RSA key with the padding PSS.
    Pss(Box<RsaKeyPair>),
    /// A secret that is the text of a public key: an old trick.
    Hmac(Vec<u8>),
    Nothing,
}

/// The answer of the provider to a code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    Tokens,
    Huge,
    Garbage,
    Redirect,
    Failure,
    Silence,
}

/// A code that was not used.
struct Code {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

/// How the provider behaves. Tests change it.
pub(crate) struct Script {
    pub(crate) claims: Value,
    /// The ID token is signed by this key, whose name is `kid`.
    pub(crate) signer: Signer,
    pub(crate) kid: &'static str,
    pub(crate) keys: Vec<Value>,
    pub(crate) metadata: Value,
    pub(crate) userinfo: Value,
    pub(crate) reaction: Reaction,
    codes: HashMap<String, Code>,
    n_codes: u32,
}

pub(crate) struct TestProvider {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    /// The number of requests for each path.
    asked: watch::Sender<HashMap<String, usize>>,
    serving: JoinHandle<()>,
}

impl Signer {
    pub(crate) fn ed() -> Self {
        Self::Ed(Box::new(Ed25519KeyPair::generate().unwrap()))
    }

    pub(crate) fn ec() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self::Ec(Box::new(pair))
    }

    pub(crate) fn rsa() -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        Self::Rsa(Box::new(pair))
    }

    pub(crate) fn pss() -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        Self::Pss(Box::new(pair))
    }

    /// The public key, as JSON of this name.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut key = match self {
            Self::Ed(pair) => json!({
                "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref()),
            }),
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y)})
            }
            Self::Rsa(pair) | Self::Pss(pair) => {
                let key = pair.public_key();
                let (n, e) = (key.modulus(), key.exponent());
                json!({
                    "kty": "RSA",
                    "n": text(n.big_endian_without_leading_zero()),
                    "e": text(e.big_endian_without_leading_zero()),
                })
            }
            Self::Hmac(_) | Self::Nothing => json!({"kty": "other"}),
        };
        key["kid"] = json!(kid);
        key["use"] = json!("sig");
        key
    }

    /// The secret that those use who take a public key for one.
    pub(crate) fn public_as_secret(&self) -> Vec<u8> {
        match self {
            Self::Ed(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Self::Rsa(pair) | Self::Pss(pair) => pair.public_key().as_ref().to_vec(),
            Self::Hmac(_) | Self::Nothing => Vec::new(),
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed(_) => "EdDSA",
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
            Self::Pss(_) => "PS256",
            Self::Hmac(_) => "HS256",
            Self::Nothing => "none",
        }
    }

    fn sign(&self, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed(pair) => pair.sign(text).as_ref().to_vec(),
            Self::Ec(pair) => pair.sign(&random, text).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => signed_by_rsa(pair, &RSA_PKCS1_SHA256, text),
            Self::Pss(pair) => signed_by_rsa(pair, &RSA_PSS_SHA256, text),
            Self::Hmac(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, text).as_ref().to_vec()
            }
            Self::Nothing => Vec::new(),
        }
    }

    fn token(&self, kid: &str, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "kid": kid, "typ": "JWT"});
        let parts = [header, claims.clone()].map(|it| URL_SAFE_NO_PAD.encode(it.to_string()));
        let text = parts.join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }
}

fn signed_by_rsa(pair: &RsaKeyPair, padding: &'static dyn RsaEncoding, text: &[u8]) -> Vec<u8> {
    let mut signed = vec![0; pair.public_modulus_len()];
    let random = SystemRandom::new();
    pair.sign(padding, &random, text, &mut signed).unwrap();
    signed
}

impl TestProvider {
    /// A provider whose ID tokens name Ann, and are valid for an hour from this second.
    pub(crate) async fn open(now_seconds: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        let signer = Signer::ed();
        let script = Script {
            claims: json!({
                "iss": url, "aud": CLIENT, "sub": "7",
                "exp": now_seconds + 3_600, "iat": now_seconds,
                "email": "ann@corp.example", "email_verified": true,
            }),
            keys: vec![signer.jwk("k1")],
            kid: "k1",
            signer,
            metadata: json!({
                "issuer": url,
                "authorization_endpoint": format!("{url}/authorize?tenant=a"),
                "token_endpoint": format!("{url}/token"),
                "jwks_uri": format!("{url}/keys"),
                "userinfo_endpoint": format!("{url}/userinfo"),
                "end_session_endpoint": format!("{url}/end"),
            }),
            userinfo: json!({"sub": "7"}),
            reaction: Reaction::Tokens,
            codes: HashMap::new(),
            n_codes: 0,
        };
        let script = Arc::new(Mutex::new(script));
        let asked = watch::Sender::new(HashMap::new());
        let (of_server, counted) = (Arc::clone(&script), asked.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, counted) = (Arc::clone(&of_server), counted.clone());
                let service = service_fn(move |request| {
                    answer(request, Arc::clone(&script), counted.clone())
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self {
            address,
            script,
            asked,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// How often this path was asked for.
    pub(crate) fn n_asked(&self, path: &str) -> usize {
        self.asked.borrow().get(path).copied().unwrap_or_default()
    }

    /// Waits until this path was asked for so often.
    pub(crate) async fn wait_for(&self, path: &str, n: usize) {
        let mut asked = self.asked.subscribe();
        let is_reached =
            |asked: &HashMap<String, usize>| asked.get(path).is_some_and(|it| *it >= n);
        asked.wait_for(is_reached).await.unwrap();
    }

    /// The person signs in on the page at this URL, which sends the browser back to this address.
    pub(crate) fn authorize(&self, url: &str) -> String {
        let url: reqwest::Url = url.parse().unwrap();
        assert_eq!(url.origin().ascii_serialization(), self.url());
        let query: HashMap<String, String> = url.query_pairs().into_owned().collect();
        assert_eq!(query["tenant"], "a");
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["client_id"], CLIENT);
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["scope"], "openid profile email");
        let mut script = self.script();
        script.n_codes += 1;
        let code = format!("c{}", script.n_codes);
        script.codes.insert(
            code.clone(),
            Code {
                nonce: query["nonce"].clone(),
                challenge: query["code_challenge"].clone(),
                redirect_uri: query["redirect_uri"].clone(),
            },
        );
        let mut back: reqwest::Url = query["redirect_uri"].parse().unwrap();
        back.query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", &query["state"])
            .append_pair("iss", &self.url());
        back.to_string()
    }
}

impl Drop for TestProvider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Mutex<Script>>,
    asked: watch::Sender<HashMap<String, usize>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    asked.send_modify(|asked| *asked.entry(path.clone()).or_default() += 1);
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
    let authorization = header("authorization").unwrap_or_default().to_owned();
    if path == "/token" && script.lock().unwrap().reaction == Reaction::Silence {
        std::future::pending::<()>().await;
    }
    let mut script = script.lock().unwrap();
    let (status, text) = match path.as_str() {
        "/.well-known/openid-configuration" => (200, script.metadata.to_string()),
        "/keys" => (200, json!({"keys": script.keys}).to_string()),
        "/token" => script.exchange(&body, &authorization),
        "/userinfo" if authorization == "Bearer t0ken" => (200, script.userinfo.to_string()),
        _ => (404, String::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    if status == 302 {
        let to = "/keys".parse().unwrap();
        response.headers_mut().insert("location", to);
    }
    Ok(response)
}

impl Script {
    fn exchange(&mut self, body: &[u8], authorization: &str) -> (u16, String) {
        match self.reaction {
            Reaction::Tokens | Reaction::Silence => {}
            Reaction::Huge => return (200, format!("{{\"a\": \"{}\"}}", "x".repeat(300_000))),
            Reaction::Garbage => return (200, "<html>".to_owned()),
            Reaction::Redirect => return (302, String::new()),
            Reaction::Failure => return (500, "{}".to_owned()),
        }
        let query = format!("http://x/?{}", std::str::from_utf8(body).unwrap());
        let query: reqwest::Url = query.parse().unwrap();
        let form: HashMap<String, String> = query.query_pairs().into_owned().collect();
        let credentials = STANDARD.encode("fleet%2F1:hunter%3A2");
        if authorization != format!("Basic {credentials}") {
            return (401, json!({"error": "invalid_client"}).to_string());
        }
        let invalid = |why: &str| {
            let error = json!({"error": "invalid_grant", "error_description": why});
            (400, error.to_string())
        };
        let Some(code) = self.codes.remove(&form["code"]) else {
            return invalid("the code was used");
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
        if challenge != code.challenge || form["redirect_uri"] != code.redirect_uri {
            return invalid("it is another sign-in");
        }
        let mut claims = self.claims.clone();
        if claims.get("nonce").is_none() {
            claims["nonce"] = json!(code.nonce);
        }
        let token = self.signer.token(self.kid, &claims);
        let reply = json!({"id_token": token, "access_token": "t0ken", "token_type": "Bearer"});
        (200, reply.to_string())
    }
}
