"""What is compared, on what data, by which measure."""
