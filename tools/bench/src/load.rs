//! The load: a fixed number of connections, one request at a time on each, for a given time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use warmroute::rng::mix;

use crate::http1::{Connection, Framing};
use crate::lockstep::Lockstep;
use crate::process::cpu_time_of_all;
use crate::prompt::{self, Shape, stamp, stamp_position};

/// What requests under way at the end may take, and the connections at the beginning.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events of a stream that only warms a connection up.
const LEAD_IN_CHUNKS: u32 = 16;
const LATENCY_MAX_US: u64 = 600_000_000;

/// The requests of a cell.
pub(crate) struct Workload {
    /// Their shape.
    pub shape: Shape,
    requests: Vec<Bytes>,
    /// Sent once on each connection before anything counts.
    lead_in: Vec<Bytes>,
    /// Of so many different prompts each request gets any; 0: each has its own as it is.
    prompts: u64,
}

/// One burst.
pub(crate) struct Burst {
    /// Where to.
    pub address: SocketAddr,
    /// How many connections.
    pub connections: usize,
    /// No request is begun after this; those under way are finished.
    pub duration: Duration,
    /// What is sent.
    pub workload: Arc<Workload>,
    /// The first request of each connection is this many further on.
    pub skip: usize,
    /// Whose CPU time counts.
    pub process_ids: Vec<u32>,
}

/// What came of a burst.
pub(crate) struct Outcome {
    /// Whole answers.
    pub answered: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// What the processes used in between.
    pub cpu: Duration,
    /// From the first byte sent to the last received, microseconds.
    pub latency_us: Histogram<u64>,
}

impl Workload {
    /// All requests of this shape.
    pub(crate) fn new(shape: Shape) -> Self {
        let lead_in = Shape { stream_chunks: shape.stream_chunks.min(LEAD_IN_CHUNKS), ..shape };
        let requests = prompt::requests(shape);
        let lead_in = if lead_in == shape { requests.clone() } else { prompt::requests(lead_in) };
        Self { shape, requests, lead_in, prompts: 0 }
    }

    /// With so many different prompts that none needs to be kept.
    pub(crate) fn numbered(shape: Shape, prompts: u64) -> Self {
        Self { prompts, ..Self::new(shape) }
    }
}

impl Burst {
    /// Sends, and waits for all answers.
    ///
    /// # Errors
    /// When a connection or an answer is broken or missing, or an answer's status is not 2xx.
    pub(crate) async fn run(self, lockstep: Arc<Lockstep>) -> Result<Outcome> {
        timeout(self.duration + PATIENCE, self.run_patiently(lockstep))
            .await
            .with_context(|| format!("answers are missing {PATIENCE:?} after the burst's end"))?
    }

    async fn run_patiently(&self, lockstep: Arc<Lockstep>) -> Result<Outcome> {
        let latency_us = Arc::new(Mutex::new(Histogram::new_with_max(LATENCY_MAX_US, 3)?));
        let mut lanes = Vec::new();
        for number in 0..self.connections {
            let stream = TcpStream::connect(self.address).await.context("connecting to the router")?;
            let connection = Connection::new(stream)?;
            let mut lane = Lane { number, connection, lockstep: Arc::clone(&lockstep) };
            lane.exchange(&self.workload.lead_in, number, self.workload.shape.stream_chunks.min(LEAD_IN_CHUNKS))
                .await?;
            lanes.push(lane);
        }
        let (start, cpu_before) = (Instant::now(), cpu_time_of_all(&self.process_ids)?);
        let mut under_way = JoinSet::new();
        for lane in lanes {
            let (workload, latency_us) = (Arc::clone(&self.workload), Arc::clone(&latency_us));
            under_way.spawn(lane.drive(workload, self.connections, self.skip, start + self.duration, latency_us));
        }
        while let Some(ended) = under_way.join_next().await {
            ended??;
        }
        let (elapsed, cpu) = (start.elapsed(), cpu_time_of_all(&self.process_ids)?.saturating_sub(cpu_before));
        let latency_us = latency_us.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        Ok(Outcome { answered: latency_us.len(), elapsed, cpu, latency_us })
    }
}

/// A connection with its share of the requests: no two lanes ever send the same one, as streams with the same number
/// would keep step with each other.
struct Lane {
    number: usize,
    connection: Connection,
    lockstep: Arc<Lockstep>,
}

impl Lane {
    async fn drive(
        mut self,
        workload: Arc<Workload>,
        lanes: usize,
        skip: usize,
        deadline: Instant,
        latency_us: Arc<Mutex<Histogram<u64>>>,
    ) -> Result<()> {
        let share = workload.requests.len() / lanes;
        ensure!(share > 0, "{lanes} connections, but only {} different requests", workload.requests.len());
        for turn in skip.. {
            let sent = Instant::now();
            if sent >= deadline && turn > skip {
                break;
            }
            let number = self.number + turn % share * lanes;
            if workload.prompts == 0 {
                self.exchange(&workload.requests, number, workload.shape.stream_chunks).await?;
            } else {
                let prompt = mix((turn * lanes + self.number) as u64) % workload.prompts;
                let mut request = workload.requests[number].to_vec();
                stamp(&mut request, stamp_position(&workload.requests[number]).unwrap_or_default(), prompt);
                self.exchange(&[request.into()], 0, workload.shape.stream_chunks).await?;
            }
            let us = u64::try_from(sent.elapsed().as_micros()).unwrap_or(LATENCY_MAX_US);
            latency_us.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).saturating_record(us);
        }
        Ok(())
    }

    /// Sends one request and reads its answer.
    async fn exchange(&mut self, requests: &[Bytes], number: usize, stream_chunks: u32) -> Result<()> {
        let request = requests.get(number).context("a request of that number")?;
        self.connection.write(request).await.context("sending a request")?;
        let (status, framing) = self.connection.response_head().await?;
        if !(200..300).contains(&status) {
            bail!("status {status}: {}", self.text(framing).await.unwrap_or_default());
        }
        match stream_chunks {
            0 => self.read_json(framing).await,
            chunks => self.read_events(framing, number, u64::from(chunks)).await,
        }
    }

    async fn read_json(&mut self, mut framing: Framing) -> Result<()> {
        let (mut first, mut last) = (None, None);
        while let Some(piece) = self.connection.next_piece(&mut framing).await? {
            first = first.or(piece.first().copied());
            last = piece.last().copied();
        }
        ensure!((first, last) == (Some(b'{'), Some(b'}')), "an answer is no JSON object");
        Ok(())
    }

    async fn read_events(&mut self, mut framing: Framing, number: usize, chunks: u64) -> Result<()> {
        let (mut events, mut last) = (0, 0);
        while let Some(piece) = self.connection.next_piece(&mut framing).await? {
            let (mut new, mut before) = (0, last);
            for &byte in piece {
                new += u64::from((before, byte) == (b'\n', b'\n'));
                before = byte;
            }
            last = before;
            events += new;
            self.lockstep.received(number, new);
        }
        // The tokens, the usage and the mark of the end.
        ensure!(events == chunks + 2, "a stream of {events} events, not {}", chunks + 2);
        Ok(())
    }

    async fn text(&mut self, mut framing: Framing) -> Result<String> {
        let mut text = Vec::new();
        while let Some(piece) = self.connection.next_piece(&mut framing).await? {
            text.extend_from_slice(piece);
            if text.len() > 2_000 {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::worker::Workers;

    fn burst(address: SocketAddr, body_bytes: usize, stream_chunks: u32) -> Burst {
        Burst {
            address,
            connections: 4,
            duration: Duration::from_millis(30),
            workload: Arc::new(Workload::new(Shape { body_bytes, stream_chunks })),
            skip: 3,
            process_ids: vec![std::process::id()],
        }
    }

    #[tokio::test]
    async fn every_answer_of_a_worker_is_counted() {
        for (body_bytes, stream_chunks) in [(1024, 0), (1 << 20, 0), (1024, 1), (1024, 40)] {
            let lockstep = Arc::new(Lockstep::new());
            let workers = Workers::start(1, b"x 1\n", Arc::clone(&lockstep)).await.unwrap();
            let outcome = burst(workers.addresses[0], body_bytes, stream_chunks).run(lockstep).await.unwrap();
            assert!(outcome.answered >= 4 && outcome.answered == outcome.latency_us.len());
            assert!(outcome.elapsed >= Duration::from_millis(20) && outcome.cpu > Duration::ZERO);
        }
    }

    #[tokio::test]
    async fn a_worker_waits_until_its_event_is_there() {
        let lockstep = Arc::new(Lockstep::new());
        let workers = Workers::start(1, b"", Arc::clone(&lockstep)).await.unwrap();
        let mut connection = Connection::new(TcpStream::connect(workers.addresses[0]).await.unwrap()).unwrap();
        let request = prompt::requests(Shape { body_bytes: 1024, stream_chunks: 3 }).swap_remove(5);
        connection.write(&request).await.unwrap();
        let (_, mut framing) = connection.response_head().await.unwrap();
        // Three tokens and the usage, each of which has to be told of; then the mark of the end.
        for told in 0..4 {
            assert!(connection.next_piece(&mut framing).await.unwrap().is_some());
            let next = timeout(Duration::from_millis(2), connection.next_piece(&mut framing)).await;
            assert!(next.is_err(), "another event after {told} of those before it were told of");
            lockstep.received(5, 1);
        }
        let last = connection.next_piece(&mut framing).await.unwrap();
        assert_eq!(last, Some(&b"data: [DONE]\n\n"[..]));
        assert_eq!(connection.next_piece(&mut framing).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_success_fails_the_run() {
        for (answer, stream_chunks, want) in [
            ("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\ntoo much!", 0, "status 503: too much!"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno", 0, "no JSON object"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\ndata: \n\n", 2, "a stream of 1 events, not 4"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{", 0, "within a body"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                assert!(read > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            let error = burst(address, 1024, stream_chunks).run(Arc::new(Lockstep::new())).await;
            let error = format!("{:#}", error.err().expect("an error"));
            assert!(error.contains(want), "{error}, not {want}");
            server.await.unwrap();
        }
    }
}
