//! An HTTP client for tests: one-shot, streaming, HTTP/2 with trailers, and raw sockets for what no library would send.
//!
//! Every step has a time limit ([`STEP_MAX`] unless set), so that a hanging gateway fails a test instead of hanging it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time one step may take: a whole one-shot request, the headers of a streamed one, one chunk.
pub const STEP_MAX: Duration = Duration::from_secs(15);

/// A request's body; see [`body`] and [`channel_body`].
pub type Body = BoxBody<Bytes, Infallible>;
/// Feeds a [`channel_body`]: `send_data(..).await`, `send_trailers(..).await`; dropping it ends the body.
pub type BodySender = Sender<Bytes, Infallible>;

/// A client of one server, with kept-alive connections.
#[derive(Clone)]
pub struct Client {
    server: SocketAddr,
    inner: legacy::Client<HttpConnector, Body>,
    step_max: Duration,
}

/// A whole response.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers; names in lower case.
    pub headers: HeaderMap,
    /// The body, complete.
    pub body: Bytes,
    /// The trailers, if there were any.
    pub trailers: Option<HeaderMap>,
}

impl Client {
    /// Speaks HTTP/1.1.
    pub fn http1(server: SocketAddr) -> Self {
        Self::new(server, false)
    }

    /// Speaks HTTP/2 without TLS, by prior knowledge.
    pub fn http2(server: SocketAddr) -> Self {
        Self::new(server, true)
    }

    fn new(server: SocketAddr, is_http2: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http2_only(is_http2)
            .build(connector);
        Self { server, inner, step_max: STEP_MAX }
    }

    /// Sets the time that one step may take.
    pub fn step_max(mut self, limit: Duration) -> Self {
        self.step_max = limit;
        self
    }

    /// GET.
    ///
    /// # Errors
    /// When there is no complete response in time; a 4xx or 5xx is a response.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        self.send("GET", path, &[], body("")).await
    }

    /// POST of a JSON body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post_json(&self, path: &str, json: &Value) -> Result<Reply> {
        self.post(path, &[], json.to_string()).await
    }

    /// POST with extra headers; `content-type: application/json` unless they say otherwise.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], content: impl Into<Bytes>) -> Result<Reply> {
        let mut headers = headers.to_vec();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type", "application/json"));
        }
        self.send("POST", path, &headers, body(content)).await
    }

    /// Any request, and its whole response.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], content: Body) -> Result<Reply> {
        let whole = async { self.open(method, path, headers, content).await?.finish().await };
        timeout(self.step_max, whole).await.with_context(|| format!("{method} {path}: no whole response in time"))?
    }

    /// Any request; returns at the response's headers. Dropping the stream resets it, as a client that gives up does.
    ///
    /// # Errors
    /// When the headers do not come in time.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], content: Body) -> Result<Stream> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = timeout(self.step_max, self.inner.request(request.body(content)?))
            .await
            .with_context(|| format!("{method} {path}: no response headers after {:?}", self.step_max))?
            .with_context(|| format!("{method} {path}"))?;
        let (head, body) = response.into_parts();
        Ok(Stream {
            status: head.status.as_u16(),
            headers: head.headers,
            trailers: None,
            body,
            step_max: self.step_max,
        })
    }
}

impl Reply {
    /// A header as text; `None` if it is missing or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text; what is not UTF-8 becomes U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none; the message holds the body.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("status {}, not JSON: {}", self.status, self.text()))
    }
}

/// A response whose body is read piece by piece.
pub struct Stream {
    /// The status code.
    pub status: u16,
    /// The headers; names in lower case.
    pub headers: HeaderMap,
    /// The trailers, once [`Stream::next`] has returned `None` and if there were any.
    pub trailers: Option<HeaderMap>,
    body: Incoming,
    step_max: Duration,
}

impl Stream {
    /// The next piece as it came from the network; `None` at the end.
    ///
    /// # Errors
    /// When the stream breaks, or nothing comes in time.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let Some(frame) = timeout(self.step_max, self.body.frame()).await.context("no next piece in time")? else {
                return Ok(None);
            };
            match frame?.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Reads the rest.
    ///
    /// # Errors
    /// As [`Stream::next`].
    pub async fn finish(mut self) -> Result<Reply> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(Reply { status: self.status, headers: self.headers, body: whole.into(), trailers: self.trailers })
    }
}

/// A body known from the start; sent with its content-length.
pub fn body(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).boxed()
}

/// A body that is sent while the request is under way, chunked or as HTTP/2 frames, with trailers if wanted (in HTTP/1.1
/// only those announced in a `trailer` header are sent, and only if the request says `te: trailers`).
pub fn channel_body() -> (BodySender, Body) {
    let (sender, body) = Channel::new(1);
    (sender, body.boxed())
}

/// A plain TCP connection, for bytes that no HTTP library would send.
pub struct Socket {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// When nobody accepts in time.
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        let stream = timeout(STEP_MAX, TcpStream::connect(server)).await.context("no connection in time")??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Writes; each call leaves as a segment of its own.
    ///
    /// # Errors
    /// When the other side has closed, or takes nothing in time.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        timeout(STEP_MAX, self.stream.write_all(bytes)).await.context("not written in time")??;
        Ok(())
    }

    /// Reads until what came since the last call holds `end`, and returns all of that.
    ///
    /// # Errors
    /// When the other side closes first, or it does not come in time; the message holds what came.
    pub async fn read_until(&mut self, end: &str) -> Result<String> {
        while !self.received.windows(end.len()).any(|window| window == end.as_bytes()) {
            if !self.receive(STEP_MAX).await? {
                let so_far = String::from_utf8_lossy(&self.received);
                anyhow::bail!("the connection ended, or {STEP_MAX:?} passed, without {end:?}; so far: {so_far:?}");
            }
        }
        Ok(self.taken())
    }

    /// Reads until the other side closes or is silent for `silence`, and returns what came since the last call.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read_rest(&mut self, silence: Duration) -> Result<String> {
        while self.receive(silence).await? {}
        Ok(self.taken())
    }

    /// False at the end, or when nothing came for `limit`.
    async fn receive(&mut self, limit: Duration) -> Result<bool> {
        match timeout(limit, self.stream.read_buf(&mut self.received)).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Ok(false),
        }
    }

    fn taken(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.received)).into_owned()
    }
}
