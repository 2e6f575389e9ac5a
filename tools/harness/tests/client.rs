//! The client against a server that sends exactly the bytes a test names.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use warmroute_harness::client::{Client, Socket, body};

const GAP: Duration = Duration::from_millis(50);

/// Takes one connection, waits for the request's first bytes, sends the pieces with a gap after each, and keeps the
/// connection open.
async fn server(pieces: &'static [&'static str]) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let _request = stream.read(&mut [0; 1024]).await?;
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await?;
            tokio::time::sleep(GAP).await;
        }
        std::future::pending::<std::io::Result<()>>().await
    });
    Ok(address)
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_stream_comes_piece_by_piece_and_then_its_trailers() -> Result<()> {
    let address = server(&[CHUNKED, "2\r\nab\r\n", "1\r\nc\r\n", "0\r\nx-sum: 3\r\n\r\n"]).await?;
    let mut stream = Client::http1(address).open("GET", "/", &[], body("")).await?;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await?.as_deref(), Some(b"ab".as_slice()));
    assert_eq!(stream.next().await?.as_deref(), Some(b"c".as_slice()));
    assert_eq!(stream.next().await?, None);
    assert_eq!(stream.trailers.and_then(|trailers| trailers.get("x-sum").cloned()), Some("3".parse()?));
    Ok(())
}

#[tokio::test]
async fn silence_is_an_error_at_every_step() -> Result<()> {
    let limit = Duration::from_millis(150);

    let before_headers = Client::http1(server(&[]).await?).step_max(limit).open("GET", "/", &[], body("")).await;
    assert!(before_headers.is_err());

    let whole = Client::http1(server(&[CHUNKED]).await?).step_max(limit).get("/").await;
    assert!(whole.is_err());

    let client = Client::http1(server(&[CHUNKED, "1\r\na\r\n"]).await?).step_max(limit);
    let mut stream = client.open("GET", "/", &[], body("")).await?;
    assert!(stream.next().await.is_ok());
    assert!(stream.next().await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_socket_keeps_nothing_from_one_read_to_the_next() -> Result<()> {
    let mut socket = Socket::connect(server(&["one;", "two;", "rest"]).await?).await?;
    socket.write(b"anything").await?;
    assert_eq!(socket.read_until("one;").await?, "one;");
    assert_eq!(socket.read_until(";").await?, "two;");
    assert_eq!(socket.read_rest(3 * GAP).await?, "rest");
    Ok(())
}
