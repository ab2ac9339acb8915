// example.com stands for the address where this folder will be published.
module example.com/serverlock-server

go 1.24
