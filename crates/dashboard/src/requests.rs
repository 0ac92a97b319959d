//! Answers the requests of browsers: the files of the page, its events, its state. Everything is read-only.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};

use super::access::{self, AccessDecision, WebToken};
use super::connections::ConnectionHandle;
use super::viewers::{MAX_VIEWERS, ResponseBody, ViewerHub};

const HTML: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");
const SCRIPT: &str = include_str!("../page/app.js");
const ICON: &str = include_str!("../page/icon.svg");

/// Nothing from elsewhere, no frames, no forms, no scripts in the text.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SECURITY_HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];
const TEXT: &str = "text/plain; charset=utf-8";

/// What all requests share.
pub(super) struct RequestContext {
    pub(super) token: Option<WebToken>,
    pub(super) hub: Mutex<ViewerHub>,
}

/// Answers a request.
pub(super) fn answer(
    context: &RequestContext,
    connection: &Arc<ConnectionHandle>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response<ResponseBody> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only: only GET and HEAD\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    match access::decide(context.token.as_ref(), headers, uri.query()) {
        AccessDecision::Granted => {}
        AccessDecision::SetCookie => return with_cookie(context.token.as_ref(), uri.path()),
        AccessDecision::Denied => {
            let what = "A token is needed: open http://THIS-HOST/?token=TOKEN, or send \"Authorization: Bearer TOKEN\".\n\
                        The token is in the file that the manager got by --web-token-file.\n";
            let mut response = text(StatusCode::UNAUTHORIZED, what);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        AccessDecision::WrongHost => {
            let what = "Without a token this page is only served under an address or as localhost: open http://127.0.0.1:PORT/.\n\
                        To use another name, start the manager with --web-token-file.\n";
            return text(StatusCode::MISDIRECTED_REQUEST, what);
        }
    }
    if uri.path() != "/" && is_from_another_site(headers) {
        return text(StatusCode::FORBIDDEN, "requests from other web sites are refused\n");
    }
    match uri.path() {
        "/" => file("text/html; charset=utf-8", HTML),
        "/style.css" => file("text/css; charset=utf-8", STYLE),
        "/app.js" => file("text/javascript; charset=utf-8", SCRIPT),
        "/icon.svg" => file("image/svg+xml", ICON),
        "/events" if *method == Method::GET => events(context, connection),
        "/state.json" => state(context),
        _ => text(StatusCode::NOT_FOUND, "there are /, /events and /state.json\n"),
    }
}

/// True if a browser says that a page of another site makes the request. Such a page could not read the answer, but use up the
/// places of viewers.
fn is_from_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"))
}

fn with_cookie(token: Option<&WebToken>, path: &str) -> Response<ResponseBody> {
    let mut response = text(StatusCode::SEE_OTHER, "");
    // Without the token, so that it does not stay in the address.
    let location = if path.starts_with("//") { "/" } else { path };
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if let Some(Ok(cookie)) = token.map(|token| HeaderValue::from_str(&token.set_cookie())) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn events(context: &RequestContext, connection: &Arc<ConnectionHandle>) -> Response<ResponseBody> {
    let added = context.hub.lock().unwrap_or_else(PoisonError::into_inner).add(connection.clone());
    match added {
        Some(body) => response(StatusCode::OK, "text/event-stream", body),
        None => {
            let what = format!("{MAX_VIEWERS} pages are open already; close one, or try again later\n");
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, what);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
            response
        }
    }
}

fn state(context: &RequestContext) -> Response<ResponseBody> {
    let state = context.hub.lock().unwrap_or_else(PoisonError::into_inner).state_json();
    match state {
        Some(json) => response(StatusCode::OK, "application/json", ResponseBody::Whole(Some(json))),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "the manager has just started; try again in a second\n"),
    }
}

fn file(kind: &'static str, content: &'static str) -> Response<ResponseBody> {
    response(StatusCode::OK, kind, ResponseBody::Whole(Some(Bytes::from_static(content.as_bytes()))))
}

fn text(status: StatusCode, content: impl Into<Bytes>) -> Response<ResponseBody> {
    response(status, TEXT, ResponseBody::Whole(Some(content.into())))
}

fn response(status: StatusCode, kind: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
