"""What a server does with what clients send, a method each: ``PLAN`` declares what travels and what stays."""
