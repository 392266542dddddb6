//! Listening sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel keeps for us to accept.
const BACKLOG: i32 = 511;

/// A listening socket at an address.
///
/// # Errors
/// The address is taken, or not one of this machine's.
pub(crate) fn listen(address: IpAddr, port: u16) -> io::Result<mio::net::TcpListener> {
    let address = SocketAddr::new(address, port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(mio::net::TcpListener::from_std(socket.into()))
}
