mod answers;
mod assembler;
mod dma;
mod request;
