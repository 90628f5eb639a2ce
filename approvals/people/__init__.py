"""What people do about a review beside signing it: taking it, handing it on."""
