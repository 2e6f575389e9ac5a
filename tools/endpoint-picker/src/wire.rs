//! The messages of `envoy.service.ext_proc.v3`, as far as they are needed here; all other fields are skipped unread.
//!
//! By hand, as generated types for all of Envoy's API take minutes to compile and this is a page.
//!
//! Source of names and numbers: Envoy 1.40, `api/envoy/service/ext_proc/v3/external_processor.proto` and
//! `api/envoy/config/core/v3/base.proto`.
#![allow(missing_docs, reason = "the fields are documented where they are from")]

use bytes::Bytes;

/// The one method of the service.
pub const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// Envoy tells of one event of an HTTP stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    #[prost(oneof = "Request", tags = "2, 3, 4, 5")]
    pub request: Option<Request>,
    /// Only in the first message of a stream.
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProtocolConfiguration {
    /// 0 = the answers' bodies are not sent.
    #[prost(int32, tag = "2")]
    pub response_body_mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// Names are in lower case. Envoy uses `raw_value`, others `value`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// The picker's answer to one event.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    pub response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    RequestHeaders(PartResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(PartResponse),
    #[prost(message, tag = "3")]
    RequestBody(PartResponse),
    #[prost(message, tag = "4")]
    ResponseBody(PartResponse),
}

/// `HeadersResponse` and `BodyResponse` in one, which look the same: without `response`, Envoy goes on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartResponse {
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

/// `HeaderValueOption.HeaderAppendAction`: whatever the header had is gone.
pub const OVERWRITE_IF_EXISTS_OR_ADD: i32 = 2;

impl HttpHeaders {
    /// The first value of a header, any bytes; `name` in lower case.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let header = self.headers.as_ref()?.headers.iter().find(|header| header.key == name)?;
        Some(if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value })
    }
}
