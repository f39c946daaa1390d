//! Names of errors.

/// The numbers that the kernel keeps to itself, but shows to tracers (`include/linux/errno.h`).
const OF_KERNEL: [(i32, &str); 18] = [
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"),
    (517, "EPROBE_DEFER"),
    (518, "EOPENSTALE"),
    (519, "ENOPARAM"),
    (521, "EBADHANDLE"),
    (522, "ENOTSYNC"),
    (523, "EBADCOOKIE"),
    (524, "ENOTSUPP"),
    (525, "ETOOSMALL"),
    (526, "ESERVERFAULT"),
    (527, "EBADTYPE"),
    (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"),
    (530, "ERECALLCONFLICT"),
];

/// Defines [`name`] and [`number`] for these constants of libc.
macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an errno, such as `ENOENT`. Where two names share a number, the more usual one.
        pub(crate) fn name(errno: i32) -> Option<&'static str> {
            match errno {
                $(libc::$name => Some(stringify!($name)),)*
                _ => OF_KERNEL.iter().find(|(known, _)| *known == errno).map(|(_, name)| *name),
            }
        }

        /// The number of an errno.
        pub(crate) fn number(name: &str) -> Option<i32> {
            match name {
                $(stringify!($name) => Some(libc::$name),)*
                "EWOULDBLOCK" => Some(libc::EWOULDBLOCK),
                "EDEADLOCK" => Some(libc::EDEADLOCK),
                "ENOTSUP" => Some(libc::ENOTSUP),
                _ => OF_KERNEL.iter().find(|(_, known)| *known == name).map(|(errno, _)| *errno),
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG
    EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG
    EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC
    ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
    ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
    ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT
    ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT
    ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL
    EHWPOISON
}

#[cfg(test)]
mod tests {
    use super::{name, number};

    #[test]
    fn numbers_have_the_names_that_the_kernel_uses() {
        assert_eq!(name(libc::ENOENT), Some("ENOENT"));
        assert_eq!(name(libc::EWOULDBLOCK), Some("EAGAIN"));
        assert_eq!(number("EWOULDBLOCK"), Some(libc::EAGAIN));
        assert_eq!(number("ENOTSUP"), number("EOPNOTSUPP"));
        assert_eq!(name(512), Some("ERESTARTSYS"));
        assert_eq!(name(520), None);
        for errno in 1..600 {
            assert_eq!(name(errno).map(number), name(errno).map(|_| Some(errno)));
        }
        let named = (1..=133).filter_map(name).count();
        assert_eq!(named, 131, "41 and 58 are unused");
    }
}
