package opentelemetry

// Version is the version of the package.
const Version = "1.0.0"
