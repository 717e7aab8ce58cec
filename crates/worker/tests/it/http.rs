//! A small HTTP server on this machine.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// A request, read to its end.
pub(crate) struct TestRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) resource: String,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

/// The response; `None` closes the connection instead.
pub(crate) type Answer = Option<(u16, String)>;

pub(crate) trait RequestHandler: Send + Sync + 'static {
    fn answer(self: Arc<Self>, request: TestRequest) -> impl Future<Output = Answer> + Send;
}

/// Serves until it is dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    _task: AbortOnDropHandle<()>,
}

pub(crate) async fn serve(answers: Arc<impl RequestHandler>) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        // Connections end with the server.
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answers = Arc::clone(&answers);
            connections.spawn(async move {
                let service = service_fn(move |request| respond(Arc::clone(&answers), request));
                // Clients may close the connection.
                let _hung_up = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    TestServer {
        url,
        _task: AbortOnDropHandle::new(task),
    }
}

async fn respond(
    answers: Arc<impl RequestHandler>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let request = TestRequest {
        method: head.method.to_string(),
        resource: head.uri.to_string(),
        headers: head.headers,
        body: body
            .collect()
            .await
            .map_err(std::io::Error::other)?
            .to_bytes(),
    };
    let answer = answers.answer(request).await;
    let (status, text) = answer.ok_or_else(|| std::io::Error::other("hanging up"))?;
    let response = Response::builder().status(status);
    Ok(response.body(Full::from(text)).unwrap())
}
