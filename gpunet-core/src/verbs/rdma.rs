//! Real verbs: libibverbs and librdmacm, opened at run time.
