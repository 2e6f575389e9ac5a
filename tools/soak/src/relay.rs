//! A TCP relay that can be cut: what stands between the plugin and Envoy's admin interface.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the relay does with connections, also with those that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Passes them on to this address.
    To(SocketAddr),
    /// Closes them.
    Cut,
    /// Takes them and passes nothing on.
    Silent,
}

/// A running relay; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    passing: watch::Sender<Passing>,
    accept: JoinHandle<()>,
}

impl Relay {
    /// A relay on a port that the system picks; it is cut until told otherwise.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, passing) = (listener.local_addr()?, watch::Sender::new(Passing::Cut));
        let accept = tokio::spawn(accept(listener, passing.clone()));
        Ok(Self { address, passing, accept })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pass(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn accept(listener: TcpListener, passing: watch::Sender<Passing>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(relay(stream, passing.subscribe()));
    }
}

/// One connection: it ends with the first change of what the relay does.
async fn relay(mut stream: TcpStream, mut passing: watch::Receiver<Passing>) {
    let now = *passing.borrow_and_update();
    let pass = async {
        match now {
            Passing::To(address) => {
                if let Ok(mut other) = TcpStream::connect(address).await {
                    let _ = copy_bidirectional(&mut stream, &mut other).await;
                }
            }
            Passing::Cut => {}
            Passing::Silent => std::future::pending().await,
        }
    };
    tokio::select! {
        () = pass => {}
        _ = passing.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    /// Answers each byte with its double.
    async fn doubler() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    while let Ok(byte) = stream.read_u8().await {
                        let _ = stream.write_u8(byte * 2).await;
                    }
                });
            }
        });
        address
    }

    /// The answer to a byte; `None` if the connection ends without one.
    async fn ask(stream: &mut TcpStream) -> Option<u8> {
        stream.write_u8(21).await.ok()?;
        stream.read_u8().await.ok()
    }

    #[tokio::test]
    async fn it_passes_until_it_is_cut_and_passes_again() {
        let (target, relay) = (doubler().await, Relay::start().await.unwrap());
        let connect = || TcpStream::connect(relay.address());
        assert_eq!(ask(&mut connect().await.unwrap()).await, None);
        relay.pass(Passing::To(target));
        let mut open = connect().await.unwrap();
        assert_eq!(ask(&mut open).await, Some(42));
        relay.pass(Passing::Silent);
        assert_eq!(ask(&mut open).await, None);
        let mut silent = connect().await.unwrap();
        assert!(timeout(Duration::from_millis(50), ask(&mut silent)).await.is_err());
        relay.pass(Passing::To(target));
        assert_eq!(ask(&mut connect().await.unwrap()).await, Some(42));
    }
}
