//! Reads HTTP/1.1 messages off a socket, both sides' kinds, with so little work that the router is what a burst measures.
//!
//! Bodies are handed out in the pieces in which they came and are never put together.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One read takes at most so much. A head must fit.
const BUFFER_BYTES: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// A kept-alive connection, and what has come on it but is not read yet.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
}

/// What follows a head, and how much of it is still to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many more bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
}

/// Where in a chunked body the next unread byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// At a chunk's size.
    Size,
    /// Within a chunk that has so many more bytes.
    Data(u64),
    /// At the line end behind a chunk.
    DataEnd,
    /// At a line of the trailer.
    Trailer,
    /// Behind the body.
    Done,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// `POST /v1/models`: method and path, as they came.
    pub target: String,
    /// Its body.
    pub framing: Framing,
}

impl Connection {
    /// Small writes leave at once.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, end: 0 })
    }

    /// Writes all of it.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// The next request's head; none when the other side has closed in between.
    pub(crate) async fn request_head(&mut self) -> Result<Option<RequestHead>> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut request = httparse::Request::new(&mut headers);
            if let httparse::Status::Complete(bytes) = request.parse(&self.buffer[self.start..self.end])? {
                let target = format!("{} {}", request.method.unwrap_or_default(), request.path.unwrap_or_default());
                // A request that says nothing has no body.
                let framing = framing(request.headers)?.unwrap_or(Framing::Length(0));
                self.start += bytes;
                return Ok(Some(RequestHead { target, framing }));
            }
            let is_between = self.start == self.end;
            if !self.fill().await? {
                ensure!(is_between, "the connection ended within a request's head");
                return Ok(None);
            }
        }
    }

    /// The next response's status and body.
    pub(crate) async fn response_head(&mut self) -> Result<(u16, Framing)> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut response = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(bytes) = response.parse(&self.buffer[self.start..self.end])? {
                let status = response.code.unwrap_or_default();
                let framing = framing(response.headers)?
                    .with_context(|| format!("an answer with status {status} has neither length nor chunks"))?;
                self.start += bytes;
                return Ok((status, framing));
            }
            ensure!(self.fill().await?, "the connection ended before an answer's head");
        }
    }

    /// The next piece of a body, none at its end. `framing` is the head's, and keeps the place.
    pub(crate) async fn next_piece(&mut self, framing: &mut Framing) -> Result<Option<&[u8]>> {
        loop {
            match framing {
                Framing::Length(0) | Framing::Chunked(Chunk::Done) => return Ok(None),
                Framing::Length(left) => {
                    let piece = self.take(*left).await?;
                    *left -= piece.len() as u64;
                    return Ok(Some(&self.buffer[piece]));
                }
                Framing::Chunked(Chunk::Data(left)) => {
                    let piece = self.take(*left).await?;
                    *left -= piece.len() as u64;
                    if *left == 0 {
                        *framing = Framing::Chunked(Chunk::DataEnd);
                    }
                    return Ok(Some(&self.buffer[piece]));
                }
                Framing::Chunked(chunk) => *chunk = self.step(*chunk).await?,
            }
        }
    }

    /// What is there of the next `left` bytes; waits for one at least.
    async fn take(&mut self, left: u64) -> Result<std::ops::Range<usize>> {
        if self.start == self.end {
            ensure!(self.fill().await?, "the connection ended within a body");
        }
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(self.end - self.start);
        let piece = self.start..self.start + bytes;
        self.start += bytes;
        Ok(piece)
    }

    /// One step over what stands between chunks.
    async fn step(&mut self, chunk: Chunk) -> Result<Chunk> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            let done = match chunk {
                Chunk::Size => match httparse::parse_chunk_size(unread) {
                    Ok(httparse::Status::Complete((bytes, 0))) => Some((bytes, Chunk::Trailer)),
                    Ok(httparse::Status::Complete((bytes, size))) => Some((bytes, Chunk::Data(size))),
                    Ok(httparse::Status::Partial) => None,
                    Err(_) => bail!("a chunk's size is no number"),
                },
                Chunk::DataEnd => match unread {
                    [b'\r', b'\n', ..] => Some((2, Chunk::Size)),
                    [] | [b'\r'] => None,
                    _ => bail!("a chunk is longer than its size"),
                },
                Chunk::Trailer => match memchr::memchr(b'\n', unread) {
                    Some(0 | 1) => Some((if unread[0] == b'\n' { 1 } else { 2 }, Chunk::Done)),
                    Some(end) => Some((end + 1, Chunk::Trailer)),
                    None => None,
                },
                Chunk::Data(_) | Chunk::Done => Some((0, chunk)),
            };
            if let Some((bytes, next)) = done {
                self.start += bytes;
                return Ok(next);
            }
            ensure!(self.fill().await?, "the connection ended between chunks");
        }
    }

    /// Reads once, behind what is there; false at the end.
    async fn fill(&mut self) -> Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            ensure!(self.start > 0, "a head of over {BUFFER_BYTES} bytes");
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        self.end += read;
        Ok(read > 0)
    }
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Option<Framing>> {
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(header.value)?.trim().parse().context("a content-length is no number")?;
            return Ok(Some(Framing::Length(length)));
        }
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            ensure!(header.value.eq_ignore_ascii_case(b"chunked"), "a transfer-encoding other than chunked");
            return Ok(Some(Framing::Chunked(Chunk::Size)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A connection that gets `bytes` in writes of `step` bytes, each read by itself, and then the end.
    async fn fed(bytes: &'static [u8], step: usize) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        writer.set_nodelay(true).unwrap();
        let reader = Connection::new(listener.accept().await.unwrap().0).unwrap();
        tokio::spawn(async move {
            for piece in bytes.chunks(step) {
                writer.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        reader
    }

    async fn body(connection: &mut Connection, mut framing: Framing) -> Result<String> {
        let mut whole = String::new();
        while let Some(piece) = connection.next_piece(&mut framing).await? {
            assert!(!piece.is_empty());
            whole += std::str::from_utf8(piece)?;
        }
        Ok(whole)
    }

    #[tokio::test]
    async fn answers_are_read_however_they_are_split() {
        const ANSWERS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: 1\r\n\r\n\
            HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        for step in [1, 2, 3, 7, 64, ANSWERS.len()] {
            let mut connection = fed(ANSWERS, step).await;
            for want in [(200, "hello"), (503, "abc0123456789"), (200, "")] {
                let (status, framing) = connection.response_head().await.unwrap();
                assert_eq!((status, body(&mut connection, framing).await.unwrap().as_str()), want, "by {step}");
            }
        }
    }

    #[tokio::test]
    async fn requests_are_read_until_the_other_side_closes() {
        let bytes = b"POST /a?b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhiGET /c HTTP/1.1\r\n\r\n";
        let mut connection = fed(bytes, 5).await;
        for want in [("POST /a?b", "hi"), ("GET /c", "")] {
            let head = connection.request_head().await.unwrap().unwrap();
            assert_eq!((head.target.as_str(), body(&mut connection, head.framing).await.unwrap().as_str()), want);
        }
        assert_eq!(connection.request_head().await.unwrap(), None);
    }

    #[tokio::test]
    async fn broken_answers_are_errors() {
        for (bytes, want) in [
            (&b"HTTP/1.1 200 OK\r\n\r\n"[..], "neither length nor chunks"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", "within a body"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\n", "no number"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "no number"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than its size"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n", "between chunks"),
            (b"HTTP/1.1 20", "before an answer's head"),
        ] {
            let mut connection = fed(bytes, bytes.len()).await;
            let read = async {
                let (_, framing) = connection.response_head().await?;
                body(&mut connection, framing).await
            };
            let error = read.await.unwrap_err().to_string();
            assert!(error.contains(want), "{error}, not {want}");
        }
    }
}
