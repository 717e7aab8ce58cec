//! A proxy between a client and a server, which can cut the connection.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) address: String,
    is_cut: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_cut, receiver) = watch::channel(false);
        tokio::spawn(accept(listener, server.to_owned(), receiver));
        Self { address, is_cut }
    }

    /// While it is cut, all connections end at once.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.send(is_cut).unwrap();
    }
}

async fn accept(listener: TcpListener, server: String, is_cut: watch::Receiver<bool>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let (server, mut is_cut) = (server.clone(), is_cut.clone());
        tokio::spawn(async move {
            let copy = async {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            };
            tokio::select! {
                Ok(_) = is_cut.wait_for(|is_cut| *is_cut) => {}
                () = copy => {}
            }
        });
    }
}
