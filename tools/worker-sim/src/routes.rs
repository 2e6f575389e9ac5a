//! What each path answers, and which faults come first.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use crate::body::{Cut, Events, SimBody};
use crate::faults::{Faults, MetricsFault};
use crate::formats::Format;
use crate::metrics;
use crate::openai::{Answer, Api, ApiError, Inference, models, rendered, tokenized};
use crate::responses;
use crate::scheduler::Job;
use crate::server::Shared;
use crate::stats::{RecordId, RequestRecord};

/// What a request knows of the connection that it came on.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Value of `x-worker`.
    pub(crate) worker: HeaderValue,
    /// Set while this connection carries the restart command, which must still be answered.
    pub(crate) spared: AtomicBool,
}

/// What routers ask of engines and vLLM does not have, by default or at all: SGLang's paths, and those that need a flag.
const ABSENT_PATHS: [&str; 9] = [
    "/get_server_info",
    "/server_info",
    "/get_model_info",
    "/model_info",
    "/get_load",
    "/get_loads",
    "/v1/loads",
    "/flush_cache",
    "/kv_event_sources",
];

type Answered = Result<Response<SimBody>, Cut>;

/// Answers one request. `Err` cuts the connection.
pub(crate) async fn handle(shared: Arc<Shared>, connection: Arc<Connection>, request: Request<Incoming>) -> Answered {
    let (head, body) = request.into_parts();
    let mut response = if head.uri.path().starts_with("/sim/") {
        match read_body(body, shared.config.max_body_bytes).await {
            Ok(body) => control(&shared, &connection, &head, &body),
            Err(refusal) => refusal,
        }
    } else {
        simulated(&shared, &head, body).await?
    };
    response.headers_mut().insert("x-worker", connection.worker.clone());
    if let Some(id) = head.headers.get("x-request-id") {
        response.headers_mut().insert("x-request-id", id.clone());
    }
    Ok(response)
}

/// The worker's own paths, behind the faults.
async fn simulated(shared: &Arc<Shared>, head: &Parts, body: Incoming) -> Answered {
    // A process that hangs does not even read; when it goes on, so do the requests that waited.
    shared.not_hanging().await?;
    let body = match read_body(body, shared.config.max_body_bytes).await {
        Ok(body) => body,
        Err(refusal) => return Ok(refusal),
    };
    shared.not_hanging().await?;
    let mut answered = answer(shared, head, &body).await;
    if let Ok(response) = &mut answered
        && head.method == Method::POST
    {
        set_digest(response.headers_mut(), &body);
    }
    answered
}

async fn answer(shared: &Arc<Shared>, head: &Parts, body: &Bytes) -> Answered {
    if shared.is_starting() {
        return Ok(error(&ApiError::new(503, "ServiceUnavailable", None, "The engine is starting.")));
    }
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/metrics") => metrics_page(shared).await,
        (&Method::GET, "/health") => Ok(plain(StatusCode::OK, "")),
        (&Method::GET, "/version") => Ok(json_body(StatusCode::OK, r#"{"version":"0.32.0"}"#.to_owned())),
        (&Method::GET, "/v1/models") => {
            Ok(json_body(StatusCode::OK, models(&shared.config, shared.start_time_s() as u64)))
        }
        (&Method::POST, "/tokenize") => Ok(told(tokenized(body, &shared.config))),
        (&Method::POST, "/v1/chat/completions/render" | "/v1/completions/render") => {
            Ok(told(if shared.config.enable_scale_out { rendered(body) } else { Err(ApiError::refused_render()) }))
        }
        // Else they would be echoed, and a router would take that for an engine's answer.
        (_, path) if ABSENT_PATHS.contains(&path) => {
            Ok(json_body(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#.to_owned()))
        }
        (method, path) => {
            let api = Api::of_path(path).filter(|_| method == Method::POST);
            let format = Format::of_path(path).filter(|_| method == Method::POST);
            let record = shared.stats.arrived(record(head, body), api.is_some() || format.is_some());
            let answered = if shared.draws_error() {
                Ok(error(&ApiError::new(500, "InternalServerError", None, "Injected error.")))
            } else if let Some(api) = api {
                infer(shared, api, body, record).await
            } else if let Some(format) = format {
                Ok(format_answer(format, body))
            } else {
                Ok(json_body(StatusCode::OK, echo(head, body)))
            };
            if let Ok(response) = &answered {
                shared.stats.answered(record, response.status().as_u16());
            }
            answered
        }
    }
}

async fn infer(shared: &Arc<Shared>, api: Api, body: &[u8], record: RecordId) -> Answered {
    let config = &shared.config;
    let parsed = match api {
        Api::Responses => responses::parse(body, config, &shared.responses),
        Api::Chat | Api::Completion => Inference::parse(api, body, config),
    };
    let Inference { model, adapter, prompt, max_tokens, stream, response } = match parsed {
        Ok(inference) => inference,
        Err(refusal) => return Ok(error(&refusal)),
    };
    shared.stats.understood(record, &model, prompt.tokens);
    let answer = Answer {
        api,
        id: shared.next_answer_id(),
        created_s: crate::server::unix_time_s() as u64,
        model_json: serde_json::Value::from(model).to_string(),
        output_seed: prompt.output_seed,
        prompt_tokens: prompt.tokens,
        block_size_tokens: config.block_size_tokens,
        details: !config.no_prompt_tokens_details,
        zero_details: !config.omit_zero_cached_tokens,
        response,
    };
    let mut ticket = shared.engine.submit(Job { prompt, adapter, max_tokens, every_token: stream.is_some() });
    if let Some(options) = stream {
        let (stats, queue) = (Arc::clone(&shared.stats), VecDeque::new());
        let events = Events { ticket, answer, options, stats, record, queue, done: false };
        let mut response = Response::new(SimBody::Events(Box::new(events)));
        set_type(response.headers_mut(), "text/event-stream; charset=utf-8");
        return Ok(response);
    }
    let end = ticket.progress().await.ok_or(Cut)?;
    shared.stats.served(record, answer.prompt_tokens, end.cached_tokens);
    Ok(json_body(StatusCode::OK, answer.whole(end.generated_tokens, end.cached_tokens)))
}

fn format_answer(format: Format, body: &[u8]) -> Response<SimBody> {
    match format.answer(body) {
        Ok(told) => {
            let mut response = Response::new(SimBody::full(told.body));
            set_type(response.headers_mut(), told.content_type);
            response
        }
        Err(refusal) => error(&refusal),
    }
}

async fn metrics_page(shared: &Shared) -> Answered {
    let fault = shared.faults().metrics;
    if fault == MetricsFault::Hang {
        shared.metrics_not_hanging().await?;
    }
    let page = match fault {
        MetricsFault::NotFound => return Ok(json_body(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#.to_owned())),
        MetricsFault::Garbage => metrics::garbage(),
        fault => metrics::render(&shared.config, &shared.engine.state(), shared.start_time_s(), fault).into_bytes(),
    };
    let mut response = Response::new(SimBody::full(page));
    set_type(response.headers_mut(), "text/plain; version=1.0.0; charset=utf-8");
    Ok(response)
}

/// The test's own paths. No fault touches them, or a hang could never be ended.
fn control(shared: &Shared, connection: &Connection, head: &Parts, body: &[u8]) -> Response<SimBody> {
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/sim/stats") => json_value(&shared.snapshot()),
        (&Method::GET, "/sim/faults") => json_value(&shared.faults()),
        (&Method::POST, "/sim/faults") => {
            let read = serde_json::from_slice::<Faults>(body).map_err(anyhow::Error::from);
            match read.and_then(|faults| shared.set_faults(faults)) {
                Ok(()) => json_value(&shared.faults()),
                Err(refusal) => error(&ApiError::new(400, "BadRequestError", None, &refusal.to_string())),
            }
        }
        (&Method::POST, "/sim/restart") => {
            connection.spared.store(true, Ordering::Relaxed);
            shared.restart();
            let mut response = json_body(StatusCode::OK, "{}".to_owned());
            if head.version < hyper::Version::HTTP_2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        (&Method::POST, "/sim/reset") => {
            shared.stats.reset();
            shared.engine.reset();
            json_body(StatusCode::OK, "{}".to_owned())
        }
        _ => error(&ApiError::new(404, "NotFoundError", None, "No such path under /sim/.")),
    }
}

async fn read_body(body: Incoming, max_bytes: usize) -> Result<Bytes, Response<SimBody>> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(failure) if failure.is::<LengthLimitError>() => {
            let message = format!("The body is larger than {max_bytes} bytes.");
            Err(error(&ApiError::new(413, "BadRequestError", None, &message)))
        }
        Err(failure) => Err(error(&ApiError::new(400, "BadRequestError", None, &failure.to_string()))),
    }
}

fn record(head: &Parts, body: &[u8]) -> RequestRecord {
    let header = |name: &str| head.headers.get(name).map(lossy);
    RequestRecord {
        path: head.uri.path().to_owned(),
        body_bytes: body.len(),
        body_xxh3: format!("{:016x}", xxh3_64(body)),
        destination_endpoint: header("x-gateway-destination-endpoint"),
        hints: hints(head),
        request_id: header("x-request-id"),
        test_id: header("x-test-id"),
        ..RequestRecord::default()
    }
}

/// What of its headers may say where a request goes: those of no standard, without what every proxy sends.
fn hints(head: &Parts) -> Vec<(String, String)> {
    let is_usual = |name: &str| {
        ["x-request-id", "x-test-id"].contains(&name)
            || ["x-forwarded-", "x-envoy-"].iter().any(|begin| name.starts_with(begin))
    };
    let names = head.headers.iter().map(|(name, value)| (name.as_str(), value));
    let hints = names.filter(|(name, _)| name.starts_with("x-") && !is_usual(name));
    hints.map(|(name, value)| (name.to_owned(), lossy(value))).collect()
}

/// The request as it arrived. Values that are not UTF-8 are shown with replacement characters.
fn echo(head: &Parts, body: &[u8]) -> String {
    let mut headers = BTreeMap::<&str, String>::new();
    for (name, value) in &head.headers {
        let all = headers.entry(name.as_str()).or_default();
        if !all.is_empty() {
            all.push(',');
        }
        all.push_str(&lossy(value));
    }
    // HTTP/2 has the host in a pseudo-header.
    if let Some(authority) = head.uri.authority() {
        headers.entry(HOST.as_str()).or_insert_with(|| authority.to_string());
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    json!({
        "path": path, "method": head.method.as_str(), "body_bytes": body.len(),
        "body_xxh3": format!("{:016x}", xxh3_64(body)), "headers": headers,
    })
    .to_string()
}

fn lossy(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn set_type(headers: &mut HeaderMap, content_type: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
}

/// What the worker got, for whoever sent it to compare: also where the answer is a refusal.
fn set_digest(headers: &mut HeaderMap, body: &[u8]) {
    let digest = format!("{:016x}-{}", xxh3_64(body), body.len());
    if let Ok(digest) = HeaderValue::from_str(&digest) {
        headers.insert("x-body-digest", digest);
    }
}

fn plain(status: StatusCode, body: &'static str) -> Response<SimBody> {
    let mut response = Response::new(SimBody::full(body));
    *response.status_mut() = status;
    response
}

fn json_body(status: StatusCode, body: String) -> Response<SimBody> {
    let mut response = Response::new(SimBody::full(body));
    *response.status_mut() = status;
    set_type(response.headers_mut(), "application/json");
    response
}

fn json_value(value: &impl serde::Serialize) -> Response<SimBody> {
    json_body(StatusCode::OK, serde_json::to_string(value).unwrap_or_default())
}

fn told(answer: Result<String, ApiError>) -> Response<SimBody> {
    answer.map_or_else(|refusal| error(&refusal), |body| json_body(StatusCode::OK, body))
}

fn error(refusal: &ApiError) -> Response<SimBody> {
    json_body(StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), refusal.body.clone())
}
