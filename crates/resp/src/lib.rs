//! The wire protocol RESP2 and RESP3: parse requests, write replies. Pure: no I/O.
