//! The origin of public artifacts: answers their paths, and nothing else.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{Method, Uri};

use super::endpoint::Service;
use super::queue::PUBLIC_ARTIFACT;
use super::read_body::RequestBody;
use super::request;
use super::request_head::RequestHead;
use super::response::{Response, not_found};
use super::route::Router;
use crate::app::App;

pub(super) fn router() -> Router {
    Router::of(PUBLIC_ARTIFACT)
}

/// Answers one request.
pub(super) async fn answer(
    app: &Arc<App>,
    router: &Router,
    mut head: RequestHead,
    body: impl RequestBody,
) -> Response {
    let path = head.uri.path().to_owned();
    // A script that answers the later requests of a browser would outlive its task.
    let is_service_worker = head.headers.contains_key("service-worker");
    // The query may be anything, such as the version of a style. Signatures in it are ignored.
    let is_served = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
    let (true, false, Ok(uri)) = (is_served, is_service_worker, Uri::try_from(path.as_str()))
    else {
        return not_found();
    };
    head.uri = uri;
    head.headers.remove(AUTHORIZATION);
    request::answer_at(app, router, (Service::Fleetwright, &path), head, body).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::endpoint::Verb;

    #[test]
    fn the_longest_names_that_have_a_path_are_found() {
        let path = |n_segments: usize| {
            let name = vec!["public"; n_segments].join("/");
            format!("/fN1SbArXTPSVFNUvaOlinQ/0/{name}")
        };
        let is_found = |n_segments| {
            let found = router().find(Service::Fleetwright, Verb::Get, &path(n_segments));
            matches!(found, Ok(Some(_)))
        };
        assert_eq!([29, 30, 31].map(is_found), [true, true, false]);
    }
}
