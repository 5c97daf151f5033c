package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	acceleratorSocket   = "llmendpoint-accelerators.sock"
	registrationTimeout = 10 * time.Second
	kubeletPollInterval = time.Second
)

// fakeAccelerators offers devices with nothing behind them, so that the scheduling of accelerators is the real one
// on a machine that has none. Each container is told its devices' ids as the vendor's own plugin would tell it.
type fakeAccelerators struct {
	v1beta1.UnimplementedDevicePluginServer
	count int
}

func (f *fakeAccelerators) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (f *fakeAccelerators) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	devices := make([]*v1beta1.Device, f.count)
	for i := range devices {
		devices[i] = &v1beta1.Device{ID: strconv.Itoa(i), Health: v1beta1.Healthy}
	}
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (f *fakeAccelerators) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids, "CUDA_VISIBLE_DEVICES": ids},
		})
	}
	return response, nil
}

func serveFakeAccelerators(args []string) int {
	usage := "usage: fake-accelerators RESOURCE COUNT, for instance: fake-accelerators nvidia.com/gpu 4"
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	count, err := strconv.Atoi(args[1])
	if err != nil || count < 0 {
		fmt.Fprintf(os.Stderr, "COUNT is %q, which is no number of devices; %s\n", args[1], usage)
		return 2
	}
	for {
		// A kubelet that starts wipes its plugin directory; the lost socket is the sign to register again.
		if err := serveUntilSocketIsGone(args[0], count); err != nil {
			fmt.Fprintln(os.Stderr, "fake-accelerators:", err)
		}
		time.Sleep(kubeletPollInterval)
	}
}

func serveUntilSocketIsGone(resource string, count int) error {
	socket := filepath.Join(v1beta1.DevicePluginPath, acceleratorSocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	v1beta1.RegisterDevicePluginServer(server, &fakeAccelerators{count: count})
	go func() { _ = server.Serve(listener) }()
	if err := register(resource); err != nil {
		return err
	}
	fmt.Println("fake-accelerators: registered", count, "x", resource)
	for {
		if _, err := os.Stat(socket); err != nil {
			return err
		}
		time.Sleep(kubeletPollInterval)
	}
}

func register(resource string) error {
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), registrationTimeout)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: acceleratorSocket, ResourceName: resource,
	})
	return err
}
