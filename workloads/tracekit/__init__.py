"""Parts of record-strace: real programs under load, traced with strace."""
