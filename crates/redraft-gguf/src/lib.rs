//! Reader, writer and block codecs for GGUF model files.
