//! The gRPC service `envoy.service.ext_proc.v3.ExternalProcessor`: one call for each HTTP stream.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::stream::Stream;
use crate::wire::{PROCESS, ProcessingRequest, ProcessingResponse};

/// A buffered body is one message; far more than Envoy buffers unless told to.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The service, as hyper calls it. It answers with the picker of the thread that it runs on.
pub(crate) struct Service;

impl hyper::service::Service<hyper::Request<Incoming>> for Service {
    type Response = hyper::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != PROCESS {
                return Ok(Status::unimplemented("only ExternalProcessor/Process is served").into_http());
            }
            let codec = ProstCodec::<ProcessingResponse, ProcessingRequest>::new();
            Ok(Grpc::new(codec).max_decoding_message_size(MESSAGE_BYTES_MAX).streaming(Call, request).await)
        })
    }
}

/// One call of `Process`.
struct Call;

impl StreamingService<ProcessingRequest> for Call {
    type Response = ProcessingResponse;
    type ResponseStream = Replies;
    type Future = Ready<Result<tonic::Response<Replies>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        ready(Ok(tonic::Response::new(Replies { messages: request.into_inner(), stream: Stream::default() })))
    }
}

/// Answers each message at once, in the task that writes the answers: no channel, no task of its own.
struct Replies {
    messages: Streaming<ProcessingRequest>,
    stream: Stream,
}

impl tokio_stream::Stream for Replies {
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let message = ready!(Pin::new(&mut this.messages).poll_next(context));
        Poll::Ready(message.map(|message| {
            this.stream.handle(message?).ok_or_else(|| Status::invalid_argument("an event that was not asked for"))
        }))
    }
}
