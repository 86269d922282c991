//! Which hosts a tool may talk to. Names and addresses that are not listed are refused, and a listed name that
//! resolves into a private range is refused unless that range is listed too.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

/// Entries are `name`, `name:port`, `address`, `address:port`, `[v6]:port` or a network `10.0.0.0/8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedHosts {
    names: Vec<(String, Option<u16>)>,
    networks: Vec<(IpNet, Option<u16>)>,
}

/// Nothing was sent: the host is not listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostRefused {
    #[error("the host {0} is not in allowed_hosts")]
    NotListed(String),
    #[error("the host {name} has only private addresses ({address}), and they are not in allowed_hosts")]
    PrivateAddress { name: String, address: IpAddr },
}

impl AllowedHosts {
    /// Adds one entry; the error says what an entry looks like.
    pub fn allow(&mut self, entry: &str) -> Result<(), String> {
        let wrong = || {
            format!(
                "`{entry}` is not a host: write `api.example.com`, `api.example.com:8443`, `10.1.2.3:80` or `10.0.0.0/8`"
            )
        };
        if let Ok(network) = entry.parse::<IpNet>() {
            self.networks.push((network, None));
        } else if let Ok(address) = entry.parse::<IpAddr>() {
            self.networks.push((address.into(), None));
        } else if let Ok(socket) = entry.parse::<std::net::SocketAddr>() {
            self.networks.push((socket.ip().into(), Some(socket.port())));
        } else {
            let (name, port) = match entry.rsplit_once(':') {
                Some((name, port)) => (name, Some(port.parse().map_err(|_| wrong())?)),
                None => (entry, None),
            };
            match Host::parse(name) {
                Ok(Host::Domain(name)) if !name.is_empty() && !name.contains('*') => {
                    self.names.push((name.trim_end_matches('.').to_owned(), port));
                }
                _ => return Err(wrong()),
            }
        }
        self.names.sort();
        self.names.dedup();
        self.networks.sort();
        self.networks.dedup();
        Ok(())
    }

    /// Before anything leaves: is the host of this URL listed, with this port?
    pub fn check_url(&self, url: &Url) -> Result<(), HostRefused> {
        let port = url.port_or_known_default();
        let same_port = |listed: &Option<u16>| listed.is_none() || *listed == port;
        let listed = match url.host() {
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                self.names.iter().any(|(listed, port)| listed == name && same_port(port))
            }
            Some(Host::Ipv4(address)) => self.lists(address.into(), same_port),
            Some(Host::Ipv6(address)) => self.lists(address.into(), same_port),
            None => false,
        };
        let shown = || match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => String::new(),
        };
        if listed { Ok(()) } else { Err(HostRefused::NotListed(shown())) }
    }

    /// After name resolution: may a listed name lead here? Ports are judged by the name's entry.
    pub fn permits_resolved(&self, address: IpAddr) -> bool {
        is_public(address) || self.lists(address, |_| true)
    }

    fn lists(&self, address: IpAddr, same_port: impl Fn(&Option<u16>) -> bool) -> bool {
        let address = plain(address);
        self.networks.iter().any(|(network, port)| network.contains(&address) && same_port(port))
    }
}

impl fmt::Display for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.iter().map(|(name, port)| match port {
            Some(port) => format!("{name}:{port}"),
            None => name.clone(),
        });
        let networks = self.networks.iter().map(|(network, port)| {
            let single = network.prefix_len() == network.max_prefix_len();
            match (single, port) {
                (true, Some(port)) => std::net::SocketAddr::new(network.addr(), *port).to_string(),
                (true, None) => network.addr().to_string(),
                (false, _) => network.to_string(),
            }
        });
        f.write_str(&names.chain(networks).collect::<Vec<_>>().join(", "))
    }
}

/// `::ffff:10.0.0.1` is 10.0.0.1.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
    }
}

/// Globally reachable, by IANA's special-purpose address registries (RFC 6890 and its updates).
fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a >= 224 // multicast, reserved, broadcast
        || (a == 100 && (64..128).contains(&b)) // shared address space, RFC 6598
        || (a == 192 && b == 0 && c == 0) // IETF protocol assignments
        || (a == 192 && b == 88 && c == 99) // 6to4 relays, deprecated
        || (a == 198 && (b == 18 || b == 19))) // benchmarks, RFC 2544
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    if s[0] == 0x64 && s[1] == 0xff9b {
        // NAT64: the IPv4 address behind it counts; the local-use prefix (RFC 8215) never does.
        return s[2..6] == [0, 0, 0, 0] && embedded(s[6], s[7]);
    }
    if s[0] == 0x2002 {
        return embedded(s[1], s[2]); // 6to4
    }
    // Only 2000::/3 is handed out for global unicast; of it, not the protocol block (Teredo, ORCHID, benchmarks) and
    // not the documentation blocks.
    (s[0] & 0xe000) == 0x2000
        && !(s[0] == 0x2001 && s[1] < 0x200)
        && !(s[0] == 0x2001 && s[1] == 0xdb8)
        && !(s[0] == 0x3fff && s[1] < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(entries: &[&str]) -> AllowedHosts {
        let mut hosts = AllowedHosts::default();
        for entry in entries {
            hosts.allow(entry).expect(entry);
        }
        hosts
    }

    #[test]
    fn only_listed_hosts_and_ports_pass() {
        let hosts = hosts(&["api.example.com", "Other.example:8443", "10.1.0.0/16", "127.0.0.1:9300", "[::1]:9300"]);
        for url in [
            "https://api.example.com/x",
            "http://API.example.com.:81/",
            "https://other.example:8443/",
            "http://10.1.2.3:5/",
            "http://127.0.0.1:9300/",
            // Other spellings of the same address are the same address.
            "http://0x7f.1:9300/",
            "http://[::ffff:127.0.0.1]:9300/",
            "http://[::1]:9300/",
        ] {
            assert_eq!(hosts.check_url(&url.parse().unwrap()), Ok(()), "{url}");
        }
        for url in [
            "https://example.com/",
            "https://evil-api.example.com/",
            "https://api.example.com.evil.example/",
            "https://other.example/",
            "http://10.2.0.1/",
            "http://127.0.0.1/",
            "http://localhost:9300/",
            "http://[::1]/",
        ] {
            assert!(hosts.check_url(&url.parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn a_name_may_lead_to_public_addresses_and_to_listed_private_ones() {
        let none = AllowedHosts::default();
        for address in ["93.184.216.34", "2606:4700::1", "64:ff9b::5db8:d822"] {
            assert!(none.permits_resolved(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::7f00:1",
        ] {
            assert!(!none.permits_resolved(address.parse().unwrap()), "{address}");
        }
        let listed = hosts(&["10.0.0.0/8", "fc00::/7"]);
        assert!(listed.permits_resolved("10.9.9.9".parse().unwrap()));
        assert!(listed.permits_resolved("::ffff:10.9.9.9".parse().unwrap()));
        assert!(listed.permits_resolved("fd00::5".parse().unwrap()));
        assert!(!listed.permits_resolved("192.168.0.1".parse().unwrap()));
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for entry in ["", "*", "*.example.com", "http://example.com", "example.com/x", "a b", "h:99999", "10.0.0.0/33"]
        {
            assert!(AllowedHosts::default().allow(entry).is_err(), "{entry:?}");
        }
        assert_eq!(
            hosts(&["b:1", "a", "10.0.0.0/8", "127.0.0.1:9300"]).to_string(),
            "a, b:1, 10.0.0.0/8, 127.0.0.1:9300"
        );
    }
}
