//! Listening sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel keeps for us to accept.
const BACKLOG: i32 = 511;

/// Bytes that the kernel keeps of what a client has sent and the server has not read; it doubles
/// the number for its own needs. Without a limit it takes in tens of megabytes at once, in one long
/// call of the client's that no other thread can interrupt on that processor: where clients share
/// the server's processors, the workers wait for it, too.
const RECEIVED_BYTES: usize = 128 * 1024;

/// The largest segment that clients are asked to send. Only the loopback device has larger ones, and
/// what a client's kernel takes in at once, before the client may be interrupted, is a multiple.
const SEGMENT_BYTES: u32 = 8 * 1024;

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
    // Before the connections begin, because their windows are scaled for it. They inherit it.
    socket.set_recv_buffer_size(RECEIVED_BYTES)?;
    socket.set_tcp_mss(SEGMENT_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(mio::net::TcpListener::from_std(socket.into()))
}
