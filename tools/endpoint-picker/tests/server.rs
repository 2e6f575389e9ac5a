//! The picker over a real connection, asked as Envoy asks, and scraping simulated workers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;
use warmroute_endpoint_picker::wire::{
    HeaderMap, HeaderValue, HttpBody, HttpHeaders, PROCESS, ProcessingRequest, ProcessingResponse, Request, Response,
};
use warmroute_endpoint_picker::{Server, start};
use worker_sim::{SimConfig, WorkerSim};

const WAIT_MAX: Duration = Duration::from_secs(20);

fn headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let header = |&(name, value): &(&str, &str)| HeaderValue {
        key: name.into(),
        raw_value: value.to_owned().into(),
        ..HeaderValue::default()
    };
    HttpHeaders { headers: Some(HeaderMap { headers: pairs.iter().map(header).collect() }), end_of_stream: false }
}

/// The events of one request, each answered; the header that the answer to its body sets.
async fn ask(channel: Channel, body_bytes: usize) -> Result<String> {
    let prompt = "word ".repeat(body_bytes / 5);
    let body = json!({ "model": "m", "prompt": prompt }).to_string();
    let events = [
        Request::RequestHeaders(headers(&[(":method", "POST"), (":path", "/v1/completions")])),
        Request::RequestBody(HttpBody { body: body.into(), end_of_stream: true }),
        Request::ResponseHeaders(headers(&[(":status", "200")])),
    ];
    let message = |request| ProcessingRequest { request: Some(request), protocol_config: None };
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::new();
    let request = tonic::Request::new(tokio_stream::iter(events.map(message)));
    let mut answers = client.streaming(request, PathAndQuery::from_static(PROCESS), codec).await?.into_inner();
    let mut destination = None;
    let mut count = 0;
    while let Some(answer) = answers.message().await? {
        count += 1;
        if let Some(Response::RequestBody(part)) = answer.response {
            let mutation = part.response.and_then(|common| common.header_mutation).context("a mutation")?;
            let header =
                mutation.set_headers.into_iter().next().and_then(|option| option.header).context("a header")?;
            destination = Some(String::from_utf8(header.raw_value.to_vec())?);
        }
    }
    ensure!(count == 3, "{count} answers to 3 events");
    destination.context("no destination")
}

async fn wait_until(what: &str, server: &Server, is_so: impl Fn(&Server) -> bool) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so(server) {
        ensure!(Instant::now() < deadline, "not so after {WAIT_MAX:?}: {what}; {:?}", server.standing());
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test]
async fn it_answers_over_http2_scrapes_and_lets_go_of_ended_streams() -> Result<()> {
    let workers = (0..3).map(|_| WorkerSim::start(SimConfig::default())).collect::<Result<Vec<_>>>()?;
    let rows: Vec<_> = workers.iter().map(|worker| json!({ "address": worker.addr() })).collect();
    let config = json!({
        "pools": [{ "cluster": "llm", "workers": rows }], "poll": { "cluster": "any", "intervalMs": 100 },
    });
    let server = start(config.to_string().as_bytes(), "127.0.0.1:0".parse()?)?;
    let channel = Channel::from_shared(format!("http://{}", server.address()))?.connect().await?;

    let first = ask(channel.clone(), 2_000).await?;
    assert_eq!(first.split(',').count(), 3, "{first}");
    assert_eq!(ask(channel.clone(), 2_000).await?.split(',').next(), first.split(',').next());
    // More than a frame, a window, or tonic's own limit of a message.
    ask(channel, 6_000_000).await?;

    wait_until("all workers are known", &server, |server| server.standing().pool.known_workers == 3).await?;
    // What it tells is of its last tick: the third request may have come since.
    let is_settled = |server: &Server| server.standing().counts.routed == 3 && server.standing().pool.requests == 0;
    wait_until("all are routed and nothing is in flight", &server, is_settled).await
}

#[tokio::test]
async fn another_method_is_unimplemented_and_not_a_hang() -> Result<()> {
    let config = json!({ "pools": [{ "cluster": "llm", "workers": [{ "address": "127.0.0.1:1" }] }] });
    let server = start(config.to_string().as_bytes(), "127.0.0.1:0".parse()?)?;
    let mut client = Grpc::new(Channel::from_shared(format!("http://{}", server.address()))?.connect().await?);
    client.ready().await?;
    let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::new();
    let path = PathAndQuery::from_static("/envoy.service.ext_proc.v3.ExternalProcessor/Other");
    let request = tonic::Request::new(tokio_stream::iter([ProcessingRequest::default()]));
    let refused = client.streaming(request, path, codec).await.err().context("an error")?;
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    Ok(())
}
