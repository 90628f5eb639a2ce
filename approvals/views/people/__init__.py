"""Pages of what people do about reviews beside signing them."""
