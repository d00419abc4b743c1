//! The gateway as a program that can be run: listeners, limits, request ids, logs, counters, drain.
//!
//! Layers from the outside in: request id and log → counters → CORS → panic → timeouts → routes. Everything about
//! data is a parameter on an object path and goes to `s3`; `/-/` holds what is about the gateway itself.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Version};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use bytes::Bytes;
use hyper_util::rt::TokioTimer;
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutBody;

use crate::http::{Gateway, KIND, docs, error, headers};
use crate::metrics::{Metrics, RequestKind};
use crate::model::ErrorKind;
use crate::s3;

/// The version of the protocol between gateways and this project's clients.
pub const PROTOCOL: u32 = 1;

/// How the gateway is run.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where requests are answered; at least one address.
    pub listen: Vec<SocketAddr>,
    /// Where metrics are answered; without it where requests are, and only when all of that is loopback.
    pub admin_listen: Option<SocketAddr>,
    /// Base domains of host-style requests.
    pub domains: Vec<String>,
    /// How long a request may take until its headers leave.
    pub request_timeout: Duration,
    /// How long a client may take to send its headers, and between two parts of its body.
    pub client_timeout: Duration,
    /// How long running requests may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Largest head of a request.
    pub header_bytes: u64,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 9000))],
            admin_listen: None,
            domains: Vec::new(),
            request_timeout: Duration::from_secs(120),
            client_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            header_bytes: 64 << 10,
        }
    }
}

/// A bound gateway: its address is known, requests wait until it runs.
pub struct Server {
    listeners: Vec<(TcpListener, Router)>,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    settings: ServerSettings,
    draining: Arc<AtomicBool>,
}

#[derive(Clone)]
struct AppState {
    gateway: Arc<Gateway>,
    draining: Arc<AtomicBool>,
    request_timeout: Duration,
    client_timeout: Duration,
}

impl Server {
    /// Binds the listeners.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub fn bind(gateway: Arc<Gateway>, settings: ServerSettings) -> io::Result<Self> {
        let draining = Arc::new(AtomicBool::new(false));
        let state = AppState {
            gateway: Arc::clone(&gateway),
            draining: Arc::clone(&draining),
            request_timeout: settings.request_timeout,
            client_timeout: settings.client_timeout,
        };
        let open_metrics = settings.admin_listen.is_none() && settings.listen.iter().all(|at| at.ip().is_loopback());
        let own = if open_metrics { own_routes().merge(metrics_route()) } else { own_routes() };
        let s3 = s3::service(gateway, settings.domains.clone());
        let routes = own.with_state(state.clone()).merge(docs::router()).fallback_service(s3);
        let routes = layered(routes, &state);
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &settings.listen {
            let listener = bind(*address)?;
            addresses.push(listener.local_addr()?);
            listeners.push((listener, routes.clone()));
        }
        let mut admin = None;
        if let Some(address) = settings.admin_listen {
            let listener = bind(address)?;
            admin = Some(listener.local_addr()?);
            let routes = own_routes().merge(metrics_route()).with_state(state.clone()).fallback(no_route);
            listeners.push((listener, layered(routes, &state)));
        }
        Ok(Self { listeners, addresses, admin, settings, draining })
    }

    /// The addresses that requests are answered on, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the admin listener, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Serves until `stop` resolves and the running requests have ended or their time is over.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let handles: Vec<Handle<SocketAddr>> = self.listeners.iter().map(|_| Handle::new()).collect();
        let (draining, drain_timeout) = (self.draining, self.settings.drain_timeout);
        let closing = handles.clone();
        tokio::spawn(async move {
            stop.await;
            draining.store(true, Ordering::Relaxed);
            tracing::info!("draining: no new connections, running requests may end");
            for handle in closing {
                handle.graceful_shutdown(Some(drain_timeout));
            }
        });
        let mut running = Vec::new();
        for (listener, handle) in self.listeners.into_iter().zip(handles) {
            running.push(listen(listener, handle, &self.settings)?);
        }
        futures::future::try_join_all(running).await.map(|_| ())
    }
}

/// Resolves on SIGTERM or SIGINT.
pub async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without handlers the signals keep their default effect, which is to end the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen(
    (listener, routes): (TcpListener, Router),
    handle: Handle<SocketAddr>,
    settings: &ServerSettings,
) -> io::Result<impl Future<Output = io::Result<()>> + use<>> {
    // Without it the end of a short answer waits for the client's acknowledgement of its beginning: 40 ms.
    let mut server = axum_server::from_tcp(listener)?.handle(handle).acceptor(NoDelayAcceptor::new());
    let http = server.http_builder();
    // hyper's least buffer is 8 KiB.
    let head = usize::try_from(settings.header_bytes).unwrap_or(usize::MAX).max(8 << 10);
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.client_timeout)
        .max_headers(128)
        .max_buf_size(head.max(64 << 10));
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(30)));
    Ok(server.serve(routes.into_make_service()))
}

fn layered(routes: Router, state: &AppState) -> Router {
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE])
        .allow_headers(Any)
        .expose_headers(headers::EXPOSED.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>())
        .max_age(Duration::from_secs(3600));
    routes
        .layer(middleware::from_fn_with_state(state.clone(), bounded_in_time))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(cors)
        .layer(middleware::from_fn_with_state(state.clone(), observed))
}

fn own_routes() -> Router<AppState> {
    Router::new()
        .route("/-/health", get(health))
        .route("/-/ready", get(ready))
        .method_not_allowed_fallback(no_method)
        .route("/-/", axum::routing::any(no_route))
        .route("/-/{*rest}", axum::routing::any(no_route))
}

fn metrics_route() -> Router<AppState> {
    Router::new().route("/-/metrics", get(metrics))
}

async fn no_route(request: Request) -> Response {
    let problem = error::Problem::new(ErrorKind::NoSuchKey, format!("no route {}", request.uri().path()));
    error::render(&problem, true, request.uri().path(), &id_of(&request)).map(Body::new)
}

async fn no_method(request: Request) -> Response {
    let message = format!("{} is not allowed on {}", request.method(), request.uri().path());
    let problem = error::Problem::new(ErrorKind::MethodNotAllowed, message);
    error::render(&problem, true, request.uri().path(), &id_of(&request)).map(Body::new)
}

async fn health() -> Response {
    axum::Json(json!({ "v": 1, "status": "ok", "version": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL }))
        .into_response()
}

async fn ready(State(state): State<AppState>) -> Response {
    const PATIENCE: Duration = Duration::from_secs(5);
    let checks = state.gateway.buckets.iter().map(|bucket| async move {
        let answer = tokio::time::timeout(PATIENCE, bucket.store.ready()).await;
        let error = match answer {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(bucket = %bucket.name, cause = ?error, "bucket is not ready");
                Some(error.to_string())
            }
            Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        let mut entry = json!({ "name": &*bucket.name, "ready": error.is_none() });
        if let (Some(error), Some(entry)) = (&error, entry.as_object_mut()) {
            entry.insert("error".into(), error.as_str().into());
        }
        (error.is_none(), entry)
    });
    let buckets = futures::future::join_all(checks).await;
    let ready = buckets.iter().all(|(ready, _)| *ready) && !state.draining.load(Ordering::Relaxed);
    let buckets: Vec<_> = buckets.into_iter().map(|(_, entry)| entry).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(json!({ "v": 1, "ready": ready, "buckets": buckets }))).into_response()
}

async fn metrics(State(state): State<AppState>) -> Response {
    state.gateway.fetcher.cache().report();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], state.gateway.metrics.encode()).into_response()
}

fn id_of(request: &Request) -> String {
    request.headers().get(s3::REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

fn resource_of(request: &Request) -> (String, bool) {
    (request.uri().path().to_owned(), error::accepts_problem_json(request.headers()))
}

/// A request whose headers have not left in time is given up. Uploads are bounded by the pace of their body instead.
async fn bounded_in_time(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::PUT | Method::POST) {
        // Only here: a wrapped body no longer says that it is empty, and a signed GET must.
        let read = Arc::new(AtomicBool::new(http_body::Body::is_end_stream(request.body())));
        let ended = Arc::clone(&read);
        let version = request.version();
        let paced = request.map(|body| Body::new(TimeoutBody::new(state.client_timeout, Read { body, ended })));
        let mut response = next.run(paced).await;
        // Whoever still sends cannot use the connection again: the rest of the body would be taken for a request.
        if version < Version::HTTP_2 && !read.load(Ordering::Acquire) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return response;
    }
    let ((resource, as_json), id) = (resource_of(&request), id_of(&request));
    match tokio::time::timeout(state.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = format!("no answer within {} s", state.request_timeout.as_secs_f64());
            let problem = error::Problem::new(ErrorKind::SlowDown, message);
            error::render(&problem, as_json, &resource, &id).map(Body::new)
        }
    }
}

/// A request's body that tells when it has been read to its end.
struct Read {
    body: Body,
    ended: Arc<AtomicBool>,
}

impl http_body::Body for Read {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || http_body::Body::is_end_stream(&self.body) {
            self.ended.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).into()));
    tracing::error!(panic = text.unwrap_or_default(), "a request panicked");
    let problem = error::Problem::new(ErrorKind::Internal, "the gateway failed; the log holds the cause");
    error::render(&problem, false, "", "").map(Body::new)
}

/// Gives the request its id, answers with it, counts and logs. What is logged holds no query and no header, since
/// these may hold signatures.
async fn observed(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = format!("{:016x}", rand::random::<u64>());
    // A client's own value must not pass as ours.
    let id_value = HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("0"));
    request.headers_mut().insert(HeaderName::from_static(s3::REQUEST_ID), id_value.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let trace = request.headers().get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kind = if path.starts_with("/-/") { RequestKind::Admin } else { RequestKind::S3 };
    let (response, kind) = KIND
        .scope(Cell::new(kind), async {
            let response = next.run(request).await;
            (response, KIND.with(Cell::get))
        })
        .await;
    let elapsed = started.elapsed();
    let status = response.status();
    state.gateway.metrics.request_finished(kind, status.as_u16(), elapsed);
    tracing::info!(
        request_id = %id,
        %method,
        path = %path,
        status = status.as_u16(),
        ms = elapsed.as_secs_f64() * 1e3,
        traceparent = trace.as_deref(),
        "answered"
    );
    let metrics = state.gateway.metrics.clone();
    let mut response = response.map(|body| Body::new(Counted { body, metrics }));
    let out = response.headers_mut();
    out.insert(HeaderName::from_static("x-request-id"), id_value.clone());
    out.insert(HeaderName::from_static("x-amz-request-id"), id_value);
    out.insert(HeaderName::from_static("x-w4dx-protocol"), HeaderValue::from(PROTOCOL));
    response
}

/// A body whose bytes are counted as they leave.
struct Counted {
    body: Body,
    metrics: Metrics,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.metrics.client_bytes_sent(data.len() as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
